"""Idle workers are compared by their prices, and by whether they are spot machines."""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.execute("ALTER TABLE idle ADD price float8, ADD spot boolean DEFAULT false NOT NULL")
