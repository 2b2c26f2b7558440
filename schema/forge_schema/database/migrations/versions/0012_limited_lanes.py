"""Lanes record whether a limit applies to them."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column(
        "lane", sa.Column("limited", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
    op.execute(
        "UPDATE lane SET limited = true FROM queue AS q, owner_quota AS o"
        " WHERE q.name = lane.queue AND o.owner = lane.owner"
        " AND num_nonnulls(q.max_jobs, q.max_gpus, o.max_jobs, o.max_gpus) > 0"
    )
