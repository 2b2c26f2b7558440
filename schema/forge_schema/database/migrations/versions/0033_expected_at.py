"""Gangs: by when one should form, so that short jobs may pass until then."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    op.add_column("forming", sa.Column("expected_at", sa.TIMESTAMP(timezone=True), nullable=True))
    op.create_check_constraint("expected_before_deadline", "forming", "expected_at < deadline")
