"""Workers that are drafted for a gang, and the time that passes until they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forge_schema.model.lease import End
from forge_schema.model.states import Reason
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.reservation import PATIENCE_S
from forge_worker.queue.gateway import SqlGateway
from support.gangs.gang_workers import GangWorker, gang_worker

if TYPE_CHECKING:
    from support.queue.rig import Rig


def fresh(rig: Rig, name: str, **changes: Any) -> GangWorker:  # noqa: ANN401  fields of Machine
    """Return a worker that reads its lanes anew with every claim."""
    worker = gang_worker(rig, name, **changes)
    assert isinstance(worker.gateway, SqlGateway)
    worker.gateway._lanes = Lanes(rig.database, worker.id, refresh_s=-1)
    return worker


def drafted(rig: Rig) -> dict[int, int]:
    """Return the job that each drafted worker keeps room for."""
    return {row["worker_id"]: row["job_id"] for row in rig.rows("SELECT * FROM draft")}


def turn_over(worker: GangWorker) -> None:
    """End the worker's single job, and claim as it does so."""
    (grant,) = worker.grants
    worker.grants = []
    worker.look([End(grant.fence, Reason.SUCCEEDED)])


def pass_time(rig: Rig, seconds: float) -> None:
    rig.clock.advance(seconds)
    rig.rows("UPDATE worker SET last_seen_at = forge_now()")
    rig.rows("UPDATE lease SET expires_at = forge_now() + interval '2 minutes'")
    rig.tick.draft()


def late(rig: Rig, **changes: Any) -> int:  # noqa: ANN401  fields of a job
    """Submit a gang, and let its patience end."""
    job = rig.submit(nodes=2, **changes)
    pass_time(rig, 0)
    pass_time(rig, PATIENCE_S)
    return job
