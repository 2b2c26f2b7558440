"""Deliveries that were sent together are tried again together."""

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0047"


def upgrade() -> None:
    op.add_column("delivery", sa.Column("batch", sa.UUID(), nullable=True))
