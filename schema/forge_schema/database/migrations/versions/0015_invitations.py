"""Let a key be an invitation, whose secret the invited person replaces."""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.execute("ALTER TABLE api_key ADD invitation boolean DEFAULT false NOT NULL")
