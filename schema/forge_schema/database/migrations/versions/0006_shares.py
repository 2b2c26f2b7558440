"""Shapes that request a share of the worker instead of fixed CPUs and memory."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.drop_constraint("cpus_positive", "shape")
    op.create_check_constraint("cpus_positive", "shape", "cpus > 0 OR (cpus = 0 AND gpus > 0)")
    op.drop_constraint("memory_positive", "shape")
    op.create_check_constraint("memory_not_negative", "shape", "memory_mb >= 0")
