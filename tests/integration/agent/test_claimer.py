"""What happens to the jobs of a claim when one of them cannot be started."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from forge_schema.database.pool import Database
from forge_schema.model.worker import Capacity, Machine
from forge_worker.agent.claim_loop import ClaimLoop, Claims
from forge_worker.agent.registration import WorkerIdentity
from forge_worker.machine.slots import Slots
from forge_worker.queue.gateway import SqlGateway

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forge_schema.model.lease import End, Ended, Grant
    from forge_worker.agent.claim_loop import Granted
    from forge_worker.machine.slots import MachineSlot
    from support.queue.rig import Rig


@pytest.mark.parametrize(("age_s", "reason"), [(0.0, "start_failed"), (5.0, "drained")])
def test_job_that_cannot_be_started_is_given_back_and_the_others_start(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, age_s: float, reason: str
) -> None:
    """A grant that was handed out again costs its job nothing: its room may be in use by now."""
    first, second = rig.submit(cpus=1), rig.submit(cpus=1)
    started: list[int] = []
    lend, refused = Slots.lend, list[int]()

    def lends(slots: Slots, token: int, needs: Capacity) -> MachineSlot:
        if not refused:
            refused.append(token)
            raise OSError("no GPU")
        return lend(slots, token, needs)

    def start(granted: Sequence[Granted]) -> None:
        started.extend(one.grant.fence.job_id for one in granted)

    def aged(
        gateway: SqlGateway, ends: Sequence[End], free: Capacity, count: int
    ) -> tuple[list[Ended], list[Grant]]:
        ended, grants = claim(gateway, ends, free, count)
        return ended, [replace(grant, age_s=age_s) for grant in grants]

    claim = SqlGateway.finish_and_claim
    monkeypatch.setattr(SqlGateway, "finish_and_claim", aged)
    monkeypatch.setattr(Slots, "lend", lends)
    with Database(rig.url) as database:
        gateway = SqlGateway(database, name="w", ttl=timedelta(seconds=60))
        gateway.register(Machine(uuid4(), cpus=4, memory_mb=100, disk_mb=100))
        slots = Slots(Capacity(4, 100, 100), max_jobs=8)
        claims = Claims(gateway, slots, WorkerIdentity())
        ClaimLoop(claims, start, period_s=60).step()
    assert started == ([second, first] if age_s else [second])
    assert rig.jobs.attempts(first)[0]["reason"] == reason
    assert slots.jobs == len(started)
