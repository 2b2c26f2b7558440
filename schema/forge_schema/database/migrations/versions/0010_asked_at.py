"""A lease records when its holder was asked to end the job."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column(
        "lease", sa.Column("asked_at", postgresql.TIMESTAMP(timezone=True), nullable=True)
    )
