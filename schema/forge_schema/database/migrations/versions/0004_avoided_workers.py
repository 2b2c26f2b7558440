"""A job that waits to be tried again avoids the workers where it failed."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    for table in ("ready", "scheduled"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN avoids bigint[]")
