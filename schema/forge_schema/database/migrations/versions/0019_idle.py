"""Workers that sleep until there are jobs for them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.create_table(
        "idle",
        sa.Column("worker_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("gpu_model", sa.Text(), primary_key=True),
        sa.Column("boot_id", postgresql.UUID(), nullable=False),
        sa.Column("cpus", sa.Double(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("disk_mb", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("vram_mb", sa.Integer(), nullable=False),
        prefixes=["UNLOGGED"],
        postgresql_with={"fillfactor": 50},
    )
