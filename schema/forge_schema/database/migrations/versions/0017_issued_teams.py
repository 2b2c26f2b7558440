"""Let single sign-on say who is in which team."""

from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.execute("ALTER TABLE owner_quota ADD by_issuer boolean DEFAULT false NOT NULL")
    op.execute("ALTER TABLE standing ADD team text")
