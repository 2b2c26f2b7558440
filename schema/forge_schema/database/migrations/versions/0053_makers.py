"""Who made a notification and a schedule, and what the people of an issuer may do.

Nothing is sent for a notification whose maker is not known; it has to be kept again. Schedules of
before go on.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

MOMENT = postgresql.TIMESTAMP(timezone=True)

revision = "0053"
down_revision = "0052"


def upgrade() -> None:
    for table, unknown in (("notification", "''"), ("schedule", "'user:'")):
        op.add_column(
            table, sa.Column("actor", sa.Text(), server_default=sa.text(unknown), nullable=False)
        )
    op.add_column("notification", sa.Column("withheld", sa.Text(), nullable=True))
    op.create_table(
        "standing",
        sa.Column("actor", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("ended_at", MOMENT, nullable=True),
        sa.CheckConstraint("role IN ('admin', 'submitter', 'viewer')", name="standing_role_known"),
        sa.PrimaryKeyConstraint("actor"),
    )
