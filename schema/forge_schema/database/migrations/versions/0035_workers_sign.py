"""Workers whose requests must be signed; nonces are kept for them as for keys."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    op.add_column("worker", sa.Column("public_key", postgresql.BYTEA(), nullable=True))
    op.create_check_constraint(
        "worker_public_key_ed25519", "worker", "octet_length(public_key) = 32"
    )
    op.drop_constraint("request_nonce_key", "request_nonce", type_="foreignkey")
