"""Schedules submit jobs and record the last one."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column(
        "schedule",
        sa.Column("overlap", sa.Boolean(), server_default=sa.text("true"), nullable=False),
    )
    op.add_column(
        "schedule", sa.Column("last_due_at", postgresql.TIMESTAMP(timezone=True), nullable=True)
    )
    op.add_column("schedule", sa.Column("last_job_id", sa.BigInteger(), nullable=True))
    op.add_column("schedule", sa.Column("error", sa.Text(), nullable=True))
    op.create_foreign_key("schedule_last_job", "schedule", "job", ["last_job_id"], ["id"])
    op.create_check_constraint(
        "last_of_schedule",
        "schedule",
        "last_due_at IS NOT NULL OR num_nonnulls(last_job_id, error) = 0",
    )
    op.create_index("schedule_due", "schedule", ["next_at"], postgresql_where=sa.text("NOT paused"))
