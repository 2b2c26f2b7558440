"""Jobs that were removed, and indexes for the foreign keys that are checked then."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.create_table(
        "tombstone",
        sa.Column("job_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("removed_at", postgresql.TIMESTAMP(timezone=True), nullable=False),
    )
    op.create_index("dependency_needed", "dependency", ["needs_id"])
    op.create_index(
        "schedule_last",
        "schedule",
        ["last_job_id"],
        postgresql_where=sa.text("last_job_id IS NOT NULL"),
    )
