"""A queue with a varied history: days in the life of a small fleet, by the queue's own verbs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

from forge_schema.model.attempt_records import CheckpointRecord, LogChunkRecord
from forge_schema.model.lease import Usage
from forge_schema.model.states import Phase, Reason, State, WorkerKind, WorkerStatus
from forge_schema.model.worker import Gpu

if TYPE_CHECKING:
    from datetime import datetime

    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig, Worker

A100 = "NVIDIA A100-SXM4-80GB"
OWNERS, QUEUES = ("ann", "bob", "eve"), ("default", "night")
ENDS = {
    Reason.SUCCEEDED: 10,
    Reason.EXIT_CODE: 3,
    Reason.OOM: 1,
    Reason.STALLED: 1,
    Reason.TIMEOUT: 1,
    Reason.PREEMPTED: 5,
    Reason.DRAINED: 2,
    Reason.GPU_FAULT: 2,
    Reason.STORAGE_FAILED: 1,
    Reason.START_FAILED: 1,
}
# A gang's other rank, as the same lease on another worker would write it.
SECOND_RANK = """
    INSERT INTO {into}
    SELECT (jsonb_populate_record(first, jsonb_build_object(
        'rank', 1, 'nodes', 2, 'worker_id', %s::bigint, 'devices', ARRAY['GPU-gang']
    ))).*
    FROM {table} AS first WHERE rank = 0 AND job_id %% 5 = 0
"""


@dataclass
class Held:
    """A running attempt."""

    worker: Worker
    grant: Grant
    since: datetime
    devices: list[str]
    checkpoints: int = 0


@dataclass
class Fleet:
    """Workers that claim, run, fail and vanish at random."""

    rig: Rig
    dice: Random
    workers: list[Worker] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)

    def add(self, name: str, gpus: int, **changes: object) -> Worker:
        devices = [Gpu(f"GPU-{name}-{n}", A100, 81_920) for n in range(gpus)]
        kind = "cuda" if gpus else "cpu"
        worker = self.rig.worker(name, accelerator=kind, gpus=devices, **changes)
        worker.free = replace(worker.free, gpu_model=A100, vram_mb=81_920, gpus_in_all=gpus)
        self.workers.append(worker)
        return worker

    def step(self) -> None:
        """Advance the time; a little of everything happens."""
        self.rig.clock.advance(self.dice.uniform(300, 7000))
        self.lose()
        for _ in range(self.dice.randrange(4)):
            self.submit()
        self.rig.tick.promote()
        self.claim()
        for one in list(self.held):
            self.live(one)
        if self.dice.random() < 0.2:
            self.change_a_mind()

    def lose(self) -> None:
        """Renew all leases except the lost ones."""
        lost = self.dice.choice(self.held) if self.held and self.dice.random() < 0.1 else None
        for worker in self.workers:
            worker.renew(*(one.grant for one in self.held if one.worker is worker and one != lost))
        if lost:
            self.rig.tick.requeue()
            self.held.remove(lost)

    def submit(self) -> None:
        dice = self.dice
        self.rig.submit(
            owner=dice.choice(OWNERS),
            queue=dice.choice(QUEUES),
            name=dice.choice(["train", "eval"]),
            gpus=dice.choice([0, 0, 1, 1, 2]),
            delay_s=dice.choice([0, 0, 4000]),
            max_failures=1,
        )

    def claim(self) -> None:
        worker = self.dice.choice(self.workers)
        for grant in worker.claim(self.dice.randrange(1, 4)):
            wanted = grant.spec["resources"].get("gpus", 0)
            devices = [gpu.uuid for gpu in worker.machine.gpus[:wanted]]
            one = Held(worker, grant, self.rig.clock.now, devices)
            self.held.append(one)
            if self.dice.random() < 0.9:
                self.rig.clock.advance(self.dice.uniform(1, 60))
                self.rig.queue.report(grant.fence, Phase.RUNNING, devices=devices)

    def live(self, one: Held) -> None:
        roll = self.dice.random()
        if roll < 0.3:
            self.rig.clock.advance(1)
            found = CheckpointRecord(one.checkpoints, f"c{one.checkpoints}", 1, 1)
            self.rig.records.add_checkpoint(one.grant.fence, found)
            one.checkpoints += 1
        elif roll < 0.7:
            self.end(one)

    def end(self, one: Held) -> None:
        self.rig.clock.advance(self.dice.uniform(1, 300))
        if self.dice.random() < 0.1:
            self.rig.queue.cancel(one.grant.fence.job_id)
            reason = Reason.CANCELLED
        else:
            (reason,) = self.dice.choices(list(ENDS), list(ENDS.values()))
        self.rig.finish(one.grant, reason, usage=self.usage(one), exit_code=3)
        self.held.remove(one)

    def usage(self, one: Held) -> Usage:
        seconds = (self.rig.clock.now - one.since).total_seconds()
        price = one.worker.machine.price_per_hour
        return Usage(
            gpu_seconds=seconds * len(one.devices),
            energy_j=seconds * 300 * len(one.devices) if self.dice.random() < 0.7 else None,
            cost=None if price is None else seconds * price / 3600,
        )

    def change_a_mind(self) -> None:
        """Cancel a waiting job, or retry a failed one."""
        for job in self.rig.jobs.jobs(count=20):
            if job["state"] == State.READY and self.dice.random() < 0.1:
                self.rig.queue.cancel(job["job_id"])
            elif job["state"] in {State.FAILED, State.DEAD} and self.dice.random() < 0.3:
                self.rig.queue.retry(job["job_id"])


def fill(rig: Rig, steps: int = 60, seed: int = 7) -> None:
    """Fill a queue; the same seed gives the same history."""
    fleet = Fleet(rig, Random(seed))  # noqa: S311  it is to be repeated
    fleet.add("big", 2, price_per_hour=3.0)
    fleet.add("free", 1)
    spot = fleet.add("spot", 1, price_per_hour=1.2, kind=WorkerKind.EPHEMERAL)
    for n in range(steps):
        if n == steps // 2:
            _leave(fleet, spot)
        fleet.step()
    second = fleet.workers[0].id
    rig.rows(SECOND_RANK.format(into="attempt_row", table="attempt"), second)
    _present(fleet)


def _leave(fleet: Fleet, worker: Worker) -> None:
    """Have a spot machine give back its jobs, leave, and lose its row."""
    for one in [one for one in fleet.held if one.worker is worker]:
        fleet.rig.finish(one.grant, Reason.PREEMPTED, usage=fleet.usage(one))
        fleet.held.remove(one)
    fleet.workers.remove(worker)
    fleet.rig.registry.disconnect(worker.id, worker.machine.boot_id)
    fleet.rig.clock.advance(7200)
    for other in fleet.workers:
        other.renew(*(held.grant for held in fleet.held if held.worker is other))
    assert fleet.rig.tick.reap() == 1


def _present(fleet: Fleet) -> None:
    """Create every kind of stuck job, beside healthy ones."""
    rig = fleet.rig
    worker = fleet.add("idle", 0)
    moon = rig.submit(labels={"zone": "moon"})
    assert rig.state(moon) == State.READY
    for name in ("quiet", "loud", "late"):
        rig.submit(name=name, owner="eve", priority=1000)
        grant = worker.claim_one()
        rig.queue.report(grant.fence, Phase.RUNNING, devices=[])
        fleet.held.append(Held(worker, grant, rig.clock.now, []))
    rig.rows(SECOND_RANK.format(into="lease", table="lease"), worker.id)
    rig.submit(name="left", owner="ann")
    rig.submit(name="paused", queue="shut")
    rig.admin.set_queue("shut", {"paused": True})
    rig.submit(name="over", queue="full")
    rig.admin.set_queue("full", {"max_jobs": 0})
    rig.clock.advance(timedelta(hours=1).total_seconds())
    # The third job's lease runs out.
    quiet, loud = fleet.held[-3:-1]
    rig.records.add_log_chunk(loud.grant.fence, LogChunkRecord(0, "k", 0, 1, "ab" * 32))
    # One worker stays idle.
    fleet.add("rest", 0).renew()
    fences = [quiet.grant.fence, loud.grant.fence]
    rig.queue.renew(worker.id, worker.machine.boot_id, fences, WorkerStatus.IDLE)
