"""How notifications are sent, and how summaries of metrics are found.

Deliveries that were sent together are tried again together, one of several senders leads, and an
admin allows networks instead of all addresses at once: those have to be named. And the summaries of
whole attempts are found without those of every hundred lines.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0050"
down_revision = "0047"


def upgrade() -> None:
    op.add_column("delivery", sa.Column("batch", sa.UUID(), nullable=True))
    op.drop_column("notifier", "private")
    op.add_column(
        "notifier",
        sa.Column(
            "allow", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
    )
    op.create_index(
        "metric_span_whole",
        "metric_span",
        ["job_id", "rank", "token"],
        postgresql_where=sa.text("span = -1"),
    )
    op.add_column("notifier", sa.Column("led_by", sa.UUID(), nullable=True))
    op.add_column("notifier", sa.Column("lead_until", sa.TIMESTAMP(timezone=True), nullable=True))
