"""Jobs above what their owner may spend without asking wait for an admin's approval."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.add_column("owner_quota", sa.Column("approve_gpu_hours", sa.Double(), nullable=True))
    op.add_column("owner_quota", sa.Column("approve_cost", sa.Double(), nullable=True))
    op.create_check_constraint(
        "approvals_not_negative", "owner_quota", "approve_gpu_hours >= 0 AND approve_cost >= 0"
    )
    op.add_column("held", sa.Column("approval", postgresql.JSONB(), nullable=True))
    op.create_check_constraint("approval_object", "held", "jsonb_typeof(approval) = 'object'")
    op.create_index(
        "held_approval", "held", ["job_id"], postgresql_where=sa.text("approval IS NOT NULL")
    )
