"""Sweepers tell each other of their ticks."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column(
        "sweeper", sa.Column("swept_at", postgresql.TIMESTAMP(timezone=True), nullable=True)
    )
