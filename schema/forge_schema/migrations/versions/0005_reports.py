"""Reports and pages: what they read by an index of its own."""

import sqlalchemy as sa
from alembic import op

# What ended an attempt through no fault of its job's.
INTERRUPTED = (
    "reason IN ('preempted', 'drained', 'worker_lost', 'gpu_fault', 'storage_failed',"
    " 'start_failed')"
)

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_index(
        "attempt_interrupted",
        "attempt",
        ["finished_at"],
        postgresql_where=sa.text(INTERRUPTED),
    )
