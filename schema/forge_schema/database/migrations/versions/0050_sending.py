"""Deliveries that were sent together are tried again together, and one of several senders leads."""

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0047"


def upgrade() -> None:
    op.add_column("delivery", sa.Column("batch", sa.UUID(), nullable=True))
    op.add_column("notifier", sa.Column("led_by", sa.UUID(), nullable=True))
    op.add_column("notifier", sa.Column("lead_until", sa.TIMESTAMP(timezone=True), nullable=True))
