"""Notifications: whom to tell of what, and what is to be sent."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

MOMENT = postgresql.TIMESTAMP(timezone=True)

revision = "0047"
down_revision = "0045"


def upgrade() -> None:
    _notification()
    _delivery()
    op.create_table(
        "notifier",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("smtp_url", sa.Text(), nullable=True),
        sa.Column("sender", sa.Text(), nullable=True),
        sa.Column("private", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("noticed_at", MOMENT, nullable=True),
        sa.CheckConstraint("id = 1", name="one_notifier"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.execute("INSERT INTO notifier (id) VALUES (1)")


def _notification() -> None:
    op.create_table(
        "notification",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=True),
        sa.Column("events", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("query", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("everyone", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("server", sa.Text(), nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("failures", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("paused_until", MOMENT, nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.CheckConstraint("kind IN ('webhook', 'slack', 'email')", name="notification_kind"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("owner", "name", name="notification_name"),
    )


def _delivery() -> None:
    op.create_table(
        "delivery",
        sa.Column("id", sa.UUID(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("notification_id", sa.Integer(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("subject", sa.BigInteger(), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'new'"), nullable=False),
        sa.Column("facts", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("message", postgresql.JSONB(), nullable=True),
        sa.Column("tries", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("next_at", MOMENT, nullable=False),
        sa.Column("settled_at", MOMENT, nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "state IN ('new', 'waiting', 'sent', 'skipped', 'failed')", name="delivery_state"
        ),
        sa.ForeignKeyConstraint(
            ["notification_id"], ["notification.id"], name="delivery_of", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint(
            "notification_id", "event", "subject", "at", name="delivery_once_per_event"
        ),
    )
    _indexes()


def _indexes() -> None:
    for name, columns, where in (
        ("delivery_new", ["notification_id", "id"], "state = 'new'"),
        ("delivery_due", ["notification_id", "next_at"], "state = 'waiting'"),
        ("delivery_settled", ["settled_at"], "settled_at IS NOT NULL"),
        ("delivery_failed", ["notification_id"], "state = 'failed'"),
        ("delivery_skipped", ["at"], "state = 'skipped'"),
    ):
        op.create_index(name, "delivery", columns, postgresql_where=sa.text(where))
    op.create_index("delivery_newest", "delivery", ["at", "id"])
