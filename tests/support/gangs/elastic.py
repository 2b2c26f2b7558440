"""Runs with a range of machines, from their forming to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forge_schema.model.lease import End, Fence
from forge_schema.model.states import Phase, Reason
from support.gangs.gang_workers import MEMBERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.gangs.gang_workers import GangWorker
    from support.queue.rig import Rig

SPENT = "SELECT failures, losses, preemptions FROM lease WHERE job_id = %s LIMIT 1"


def members(rig: Rig, job: int) -> list[dict[str, Any]]:
    """Return the leases of a gang, by rank, which must be whole, on a worker each."""
    found = [row for row in rig.rows(MEMBERS) if row["job_id"] == job]
    assert [row["rank"] for row in found] == list(range(len(found)))
    assert {row["nodes"] for row in found} <= {len(found)}
    assert len({row["worker_id"] for row in found}) == len(found)
    return found


def fences(rig: Rig, job: int) -> list[Fence]:
    """Return the fences of a run, by rank."""
    return [Fence(job, row["token"], row["nonce"]) for row in members(rig, job)]


def end_run(rig: Rig, job: int, reason: Reason = Reason.RUN_ENDED) -> None:
    """End every member of a run for one reason."""
    for fence in fences(rig, job):
        rig.queue.finish([End(fence, reason)])


def begin(rig: Rig, job: int) -> None:
    """Have all members of a run compute, and the first one store a checkpoint."""
    for fence in fences(rig, job):
        rig.queue.report(fence, Phase.RUNNING)
    rig.rows(
        "INSERT INTO checkpoint (job_id, token, number, attempt, created_at, key, files, bytes)"
        " SELECT job_id, token, 1, attempt, forge_now(), 'k', 1, 1 FROM lease"
        " WHERE job_id = %s AND rank = 0",
        job,
    )


def formed(rig: Rig, workers: Sequence[GangWorker], **changes: Any) -> int:  # noqa: ANN401  fields of a job
    """Submit a job, of which the workers fetch their leases, and begin."""
    job = rig.submit(**{"nodes": 2, **changes})
    for worker in workers:
        worker.look()
    begin(rig, job)
    return job


def pass_time(rig: Rig, seconds: float) -> int:
    """Return how many runs a sweeper has end to grow after some time."""
    rig.clock.advance(seconds)
    rig.rows("UPDATE worker SET last_seen_at = forge_now()")
    rig.rows("UPDATE lease SET expires_at = forge_now() + interval '2 minutes'")
    rig.tick.draft()
    return rig.tick.grow()


def spent(rig: Rig, job: int) -> list[int]:
    """Return what a running job has used of its budgets: failures, losses, preemptions."""
    return list(rig.row(SPENT, job).values())
