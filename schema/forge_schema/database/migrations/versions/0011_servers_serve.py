"""Servers record when they last served."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    for name in ("served_at", "served_since"):
        op.add_column(
            "sweeper", sa.Column(name, postgresql.TIMESTAMP(timezone=True), nullable=True)
        )
