"""A waiting job records since when it has been passed by."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column(
        "ready", sa.Column("passed_at", postgresql.TIMESTAMP(timezone=True), nullable=True)
    )
