"""The queue's tables as the state machine compares them, and how to empty them between runs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from forge_schema.model.lease import Fence

if TYPE_CHECKING:
    from support.queue.queue_model import Job
    from support.queue.rig import Rig

Row = dict[str, Any]

# Keeps workers, lanes and the rows that they refer to. The history's triggers would refuse.
QUEUE = (
    *("job", "ready", "scheduled", "held", "turn", "sweep_cap", "dependency", "lease", "outcome"),
    *("attempt_row", "event", "forming", "draft"),
)
RECORDS = ("log_chunk", "checkpoint", "artifact", "metric")
EMPTY = "SET session_replication_role = replica;" + "".join(
    f"DELETE FROM {table};" for table in (*QUEUE, *RECORDS)
)

PLACES = """
    SELECT job_id, 'ready' AS state, attempt, failures, losses, preemptions, NULL::bigint AS token,
        NULL::uuid AS nonce, NULL::bigint AS worker_id, NULL::timestamptz AS expires_at,
        NULL::timestamptz AS deadline_at, NULL::timestamptz AS run_at, NULL::asked AS asked,
        NULL::reason AS reason
    FROM ready
    UNION ALL
    SELECT job_id, 'scheduled', attempt, failures, losses, preemptions, NULL, NULL, NULL, NULL,
        NULL, run_at, NULL, NULL
    FROM scheduled
    UNION ALL
    SELECT job_id, 'held', attempt, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM held
    UNION ALL
    SELECT job_id, 'running', attempt, failures, losses, preemptions, token, nonce, worker_id,
        expires_at, deadline_at, NULL, asked, NULL
    FROM lease
    UNION ALL
    SELECT job_id, state::text, attempt, NULL, NULL, NULL, token, nonce, NULL, NULL, NULL, NULL,
        NULL, reason
    FROM outcome
"""


def empty(rig: Rig) -> None:
    """Delete every job and all rows that belong to it."""
    rig.rows(EMPTY)


def places(rig: Rig) -> dict[int, Row]:
    """Return the place of each job.

    Raises:
        AssertionError: a job is in more than one place.
    """
    found: dict[int, Row] = {}
    for row in rig.rows(PLACES):
        assert row["job_id"] not in found, f"job {row['job_id']} is in two places"
        found[row["job_id"]] = row
    return found


def not_avoiding(rig: Rig, worker_id: int, jobs: list[Job]) -> list[Job]:
    """Leave out the ready jobs that a worker may not have yet, since they failed on it.

    A suspected one that rests has none.
    """
    if rig.rows("SELECT FROM worker WHERE id = %s AND forge_rests(worker)", worker_id):
        return []
    rows = rig.rows(
        "SELECT job_id FROM ready"
        " WHERE %s = ANY(avoids) AND ready_at > forge_now() - forge_avoidance()",
        worker_id,
    )
    others = {row["job_id"] for row in rows}
    return [job for job in jobs if job.id not in others]


def histories(rig: Rig) -> dict[int, list[Row]]:
    """Return the attempts of each job, in order."""
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rig.rows("SELECT * FROM attempt ORDER BY job_id, attempt, finished_at"):
        found[row["job_id"]].append(row)
    return found


def fence(row: Row) -> Fence | None:
    """Return the fence in a row, if any."""
    return Fence(row["job_id"], row["token"], row["nonce"]) if row["token"] else None


def as_stored(row: Row) -> tuple[object, ...]:
    """Return a row of `places` in the model's form."""
    state, spent = row["state"], (row["failures"], row["losses"], row["preemptions"])
    ends = (row["worker_id"], row["expires_at"], row["deadline_at"], row["asked"])
    budgets = None if spent == (None, None, None) else spent
    return (state, row["attempt"], fence(row), *ends, row["run_at"], row["reason"], budgets)
