"""Workers prefer jobs of which they have the parts, and are preferred for them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    # They have an argument more now, and would stand beside the new ones.
    op.execute("DROP FUNCTION IF EXISTS forge_wake(integer[], text)")
    op.execute("DROP FUNCTION IF EXISTS forge_wake_after(integer[], integer[])")
    integers = postgresql.ARRAY(sa.Integer())
    op.add_column("ready", sa.Column("parts", integers, nullable=True))
    op.add_column(
        "idle", sa.Column("jobs", sa.SmallInteger(), server_default=sa.text("1"), nullable=False)
    )
    op.add_column(
        "idle", sa.Column("warm", integers, server_default=sa.text("'{}'"), nullable=False)
    )
