"""Artifacts that are links, and the times of the others."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0051"
down_revision = "0050"


def upgrade() -> None:
    op.add_column("artifact", sa.Column("target", sa.Text(), nullable=True))
    op.add_column(
        "artifact", sa.Column("modified_at", postgresql.TIMESTAMP(timezone=True), nullable=True)
    )
