"""Indexes for reports and pages."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

# Reasons that are not the job's fault.
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
    _jobs()
    _workers()
    _days()
    _ages()


def _jobs() -> None:
    op.create_index("job_lane_newest", "job", ["lane_id", "id"])
    op.create_index(
        "outcome_unsuccessful",
        "outcome",
        ["reason", "job_id"],
        postgresql_where=sa.text("state <> 'succeeded'"),
    )


def _workers() -> None:
    # An index on a partitioned table cannot be built CONCURRENTLY, so no attempt can end meanwhile.
    # It takes about a second per million attempts, well within every worker's timeout.
    op.create_index("attempt_worker", "attempt", ["worker_id", "finished_at"])
    op.create_index(
        "event_worker",
        "event",
        ["worker_id", "at"],
        postgresql_where=sa.text("worker_id IS NOT NULL"),
    )


def _days() -> None:
    finished, claimed, submitted = (
        sa.text(f"(({column} AT TIME ZONE 'UTC')::date)")
        for column in ("finished_at", "claimed_at", "submitted_at")
    )
    op.create_index("attempt_days", "attempt", [finished, claimed], postgresql_using="brin")
    op.create_index("job_days", "job", ["submitted_at", submitted], postgresql_using="brin")
    op.create_index("test_result_at", "test_result", ["created_at"], postgresql_using="brin")


def _ages() -> None:
    op.create_index("metric_at", "metric", ["at"])
    op.create_index("sample_at", "sample", ["at"])
    op.create_table(
        "thinned",
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("width_s", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column(
            "until",
            postgresql.TIMESTAMP(timezone=True),
            server_default=sa.text("'-infinity'"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("subject", "width_s"),
    )
    op.execute(
        "INSERT INTO thinned (subject, width_s)"
        " VALUES ('metric', 60), ('metric', 600), ('sample', 60), ('sample', 600)"
    )
