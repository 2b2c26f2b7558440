"""Workers that take part in gangs: the real gateways, without machines."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from forge_schema.model.worker import Capacity, Machine
from forge_worker.queue.gateway import SqlGateway

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from forge_schema.model.lease import End, Grant
    from forge_worker.queue.gateway import Gateway
    from support.queue.rig import Rig

MEMBERS = """
    SELECT job_id, rank, nodes, attempt, token, nonce, worker_id FROM lease
    WHERE nodes > 1 ORDER BY job_id, rank
"""


@dataclass
class GangWorker:
    """A worker with an address, and what it has free."""

    id: int
    gateway: Gateway
    free: Capacity
    grants: list[Grant] = field(default_factory=list)

    def look(self, ends: Sequence[End] = (), **free: Any) -> list[Grant]:  # noqa: ANN401  fields of Capacity
        """Claim as a worker does, after a hint."""
        self.gateway.new_work()
        room = replace(self.free, **free)
        granted = self.gateway.finish_and_claim(ends, room, 1)[1]
        if ends and not granted:
            # As the claim loop does after a job's end.
            granted = self.gateway.finish_and_claim([], room, 1)[1]
        self.grants += granted
        return granted


def gang_machine(**changes: Any) -> Machine:  # noqa: ANN401  fields of Machine
    """Return a machine with room for one job of `spec`, which the others of a gang reach."""
    room = {"cpus": 1, "memory_mb": 100, "disk_mb": 100, "address": "10.0.0.1"}
    return Machine(**{"boot_id": uuid4(), **room, **changes})


def gang_worker(
    rig: Rig,
    name: str,
    *,
    ttl: timedelta | None = None,
    **changes: Any,  # noqa: ANN401  fields of Machine
) -> GangWorker:
    """Register a worker with direct access that has not looked for jobs yet."""
    gateway = SqlGateway(rig.database, name=name, ttl=ttl or rig.queue.ttl, hears=True)
    machine = gang_machine(**changes)
    gateway.register(machine)
    room = Capacity(machine.cpus, machine.memory_mb, machine.disk_mb, len(machine.gpus))
    return GangWorker(gateway.worker_id, gateway, room)


def asleep(rig: Rig, count: int, **changes: Any) -> list[GangWorker]:  # noqa: ANN401  as above
    """Return workers that found nothing."""
    workers = [gang_worker(rig, f"g{n}", **changes) for n in range(count)]
    for worker in workers:
        assert worker.look() == []
    return workers
