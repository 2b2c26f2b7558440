"""Owners register the sources of inputs under names."""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.execute(
        "CREATE TABLE registered_input ("
        " owner text NOT NULL,"
        " name text NOT NULL,"
        " source text NOT NULL,"
        " updated_at timestamptz NOT NULL,"
        " PRIMARY KEY (owner, name))"
    )
