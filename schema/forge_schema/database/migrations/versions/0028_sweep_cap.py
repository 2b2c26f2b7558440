"""A cap on a sweep's jobs that was changed after they were submitted."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    # It has an argument now, and would stand beside the new one.
    op.execute("DROP FUNCTION IF EXISTS forge_shares()")
    op.create_table(
        "sweep_cap",
        sa.Column("line", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("parallel", sa.SmallInteger(), nullable=False),
        sa.CheckConstraint("parallel >= 1", name="cap_positive"),
        sa.PrimaryKeyConstraint("line"),
    )
