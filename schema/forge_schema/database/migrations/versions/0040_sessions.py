"""Sessions of browsers are keys that act for somebody, so that an admin can list and end them."""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0035"


def upgrade() -> None:
    op.add_column("api_key", sa.Column("acts_for", sa.Text(), nullable=True))
