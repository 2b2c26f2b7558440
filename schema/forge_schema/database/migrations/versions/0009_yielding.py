"""Let jobs of a queue wait until one that others leave for has the slots that they gave up."""

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE queue ADD yields_for bigint, ADD yields_to smallint,"
        " ADD yields_until timestamptz"
    )
