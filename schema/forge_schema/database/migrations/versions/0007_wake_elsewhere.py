"""A function gets one more parameter; beside the old one, calls would be ambiguous."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.execute("DROP FUNCTION IF EXISTS forge_wake(integer[], text, text[])")
