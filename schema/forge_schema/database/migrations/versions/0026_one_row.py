"""A success is one row: the outcome is its attempt too. `attempt` becomes a view of both tables."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

DEFINITIONS = Path(__file__).parents[3] / "sql" / "functions" / "history"
MOMENT = postgresql.TIMESTAMP(timezone=True)
COLUMNS: dict[str, sa.types.TypeEngine[Any]] = {
    "worker_id": sa.BigInteger(),
    "lane_id": sa.Integer(),
    "ready_at": MOMENT,
    "claimed_at": MOMENT,
    "started_at": MOMENT,
    "checkpoint_at": MOMENT,
    "devices": postgresql.ARRAY(sa.Text()),
    "gpu_seconds": sa.Double(),
    "energy_j": sa.Double(),
    "cost": sa.Double(),
    "cpu_seconds": sa.Double(),
    "peak_memory_mb": sa.Integer(),
    "peak_vram_mb": sa.Integer(),
}
RENAME = """
DO $$
DECLARE
    part name;
BEGIN
    FOR part IN SELECT tgrelid::regclass FROM pg_trigger WHERE tgname = 'attempt_no_truncate' LOOP
        EXECUTE format(
            'ALTER TRIGGER attempt_no_truncate ON %I RENAME TO attempt_row_no_truncate', part
        );
    END LOOP;
    FOR part IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'attempt'::regclass LOOP
        EXECUTE format(
            'ALTER TABLE %I RENAME TO %I', part, 'attempt_row' || substr(part, length('attempt_'))
        );
    END LOOP;
    ALTER TRIGGER attempt_append_only ON attempt RENAME TO attempt_row_append_only;
    ALTER INDEX attempt_pkey RENAME TO attempt_row_pkey;
    ALTER TABLE attempt RENAME TO attempt_row;
END $$
"""
# The condition is outside the union, so that the planner still finds a job's attempts by an index
# of each table where it joins them. By the constant, a report on interruptions skips outcomes.
VIEW = """
CREATE VIEW attempt AS
SELECT * FROM (
    SELECT
        job_id, attempt, rank, finished_at, token, nonce, worker_id, lane_id, ready_at, claimed_at,
        started_at, reason, exit_code, detail, devices, gpu_seconds, energy_j, cost, cpu_seconds,
        peak_memory_mb, peak_vram_mb, checkpoint_at
    FROM attempt_row
    UNION ALL
    SELECT
        job_id, attempt, 0::smallint, finished_at, token, nonce, worker_id, lane_id, ready_at,
        claimed_at, started_at, 'succeeded', exit_code, detail, devices, gpu_seconds, energy_j,
        cost, cpu_seconds, peak_memory_mb, peak_vram_mb, checkpoint_at
    FROM outcome
) AS both_tables
WHERE worker_id IS NOT NULL
"""
TRIGGERS = (
    (
        "CREATE TRIGGER attempt_added INSTEAD OF INSERT ON attempt"
        " FOR EACH ROW EXECUTE FUNCTION forge_add_attempt()"
    ),
    (
        "CREATE TRIGGER outcome_append_only BEFORE UPDATE OR DELETE ON outcome"
        " FOR EACH ROW WHEN (OLD.worker_id IS NOT NULL) EXECUTE FUNCTION forge_keep_success()"
    ),
    (
        "CREATE TRIGGER outcome_no_truncate BEFORE TRUNCATE ON outcome"
        " FOR EACH STATEMENT EXECUTE FUNCTION forge_refuse_change()"
    ),
)

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    _outcomes()
    _checks()
    op.execute(RENAME)
    op.execute(VIEW)
    for name in ("forge_add_attempt", "forge_keep_success"):
        op.execute((DEFINITIONS / f"{name}.sql").read_text(encoding="utf-8"))
    for trigger in TRIGGERS:
        op.execute(trigger)


def _outcomes() -> None:
    for name, kind in COLUMNS.items():
        op.add_column("outcome", sa.Column(name, kind, nullable=True))
    # Each reads the table once, about half a second for a million outcomes.
    op.create_index(
        "outcome_times",
        "outcome",
        [
            "finished_at",
            "claimed_at",
            sa.text("((finished_at AT TIME ZONE 'UTC')::date)"),
            sa.text("((claimed_at AT TIME ZONE 'UTC')::date)"),
        ],
        postgresql_using="brin",
    )
    op.create_index(
        "outcome_worker",
        "outcome",
        ["worker_id", "finished_at"],
        postgresql_where=sa.text("worker_id IS NOT NULL"),
    )
    # No plan may take the new columns, of which nothing is known, to be filled.
    op.execute("ANALYZE outcome")


def _checks() -> None:
    """Postgres reads each CHECK anew at each statement. `forge_job_ended` has those of outcomes."""
    for name in ("state_has_its_reason", "token_whole"):
        op.drop_constraint(name, "outcome")
    for name in ("expires_after_claimed", "counted"):
        op.drop_constraint(name, "lease")
