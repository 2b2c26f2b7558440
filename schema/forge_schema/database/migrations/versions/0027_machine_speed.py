"""How fast a worker's machine is, as measured there."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.add_column("worker", sa.Column("speed", postgresql.JSONB(), nullable=True))
    op.create_check_constraint("speed_object", "worker", "jsonb_typeof(speed) = 'object'")
    op.add_column("idle", _number("cpu_speed"))
    op.add_column("idle", _number("gpu_speed"))


def _number(name: str) -> "sa.Column[float]":
    return sa.Column(name, sa.Double(), server_default=sa.text("0"), nullable=False)
