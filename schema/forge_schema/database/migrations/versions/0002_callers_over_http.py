"""Callers over HTTP: API keys that sign, workers made by admins, an audit trail read by time."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

NEVER_BOOTED = "boot_id = '00000000-0000-0000-0000-000000000000'"

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("api_key", sa.Column("name", sa.Text(), server_default="", nullable=False))
    op.add_column("api_key", sa.Column("public_key", postgresql.BYTEA(), nullable=True))
    op.create_check_constraint("public_key_ed25519", "api_key", "octet_length(public_key) = 32")
    op.create_table(
        "request_nonce",
        sa.Column("key_id", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("nonce", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["api_key.id"], name="request_nonce_key"),
        sa.PrimaryKeyConstraint("key_id", "nonce"),
    )
    op.create_index("request_nonce_at", "request_nonce", ["at"])
    _workers()
    op.create_index(
        "attempt_times", "attempt", ["finished_at", "claimed_at"], postgresql_using="brin"
    )
    op.create_index("event_at", "event", ["at"], postgresql_using="brin")


def _workers() -> None:
    moment = postgresql.TIMESTAMP(timezone=True)
    labels = postgresql.JSONB(astext_type=sa.Text())
    op.add_column("worker", sa.Column("token_expires_at", moment, nullable=True))
    op.add_column(
        "worker",
        sa.Column("pinned_labels", labels, server_default=sa.text("'{}'"), nullable=False),
    )
    op.drop_constraint("capacity_positive", "worker")
    op.create_check_constraint(
        "capacity_positive", "worker", f"{NEVER_BOOTED} OR (cpus > 0 AND memory_mb > 0)"
    )
    op.create_check_constraint("token_hash_sha256", "worker", "octet_length(token_hash) = 32")
    op.create_check_constraint(
        "pinned_labels_object", "worker", "jsonb_typeof(pinned_labels) = 'object'"
    )
