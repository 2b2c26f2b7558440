"""A simulation: hundreds of workers, gangs and an endless stream of single jobs all get their turn.

The statements are the real ones. Time, and how long jobs run, are the test's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from time import monotonic
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from forge_schema.model.lease import End, Grant
from forge_schema.model.states import Reason
from forge_schema.model.worker import Capacity
from forge_schema.queue.lanes import LaneBook, Lanes
from forge_schema.queue.reservation import PATIENCE_S
from support.gangs.gang_workers import gang_machine
from support.queue.rig import spec

if TYPE_CHECKING:
    from support.queue.rig import Rig

WORKERS = 400
STEP_S = 5.0
BEAT_S = 30.0
SINGLES_S = (120.0, 600.0)
GANGS_S = (120.0, 300.0)
GANGS = 10
# A gang is submitted this often, while so many singles wait at any time.
EVERY_S = 30.0
BACKLOG = 24
FREE = Capacity(1, 100, 100)


@dataclass
class Simulated:
    """A worker that runs one job at a time; `nonce` names its next claim."""

    id: int
    lanes: Lanes
    nonce: UUID = field(default_factory=uuid4)
    offered: bool = False
    grant: Grant | None = None
    ends_at: float = 0.0


class Simulation:
    """The fleet, its clock in seconds, and when each job was submitted and started."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig, self.dice = rig, Random(seed)  # noqa: S311  no secret hangs on it
        self.now = 0.0
        self.submitted: dict[int, float] = {}
        self.started: dict[int, float] = {}
        self.nodes: dict[int, int] = {}
        # For how long workers stood idle while jobs waited.
        self.idle_s = 0.0
        self.backlog = 0
        self._asleep: set[int] = set()
        self._book = LaneBook(rig.database)
        self.workers = [self._worker(f"w{n}") for n in range(WORKERS)]

    def _worker(self, name: str) -> Simulated:
        worker_id = self.rig.registry.register(name, gang_machine())
        lanes = Lanes(self.rig.database, worker_id, refresh_s=1e9, book=self._book)
        return Simulated(worker_id, lanes)

    def submit(self, count: int, nodes: int = 1) -> None:
        for job in self.rig.queue.submit([spec(nodes=nodes)] * count):
            self.submitted[job], self.nodes[job] = self.now, nodes

    def step(self) -> None:
        """Let time pass; jobs end, workers claim, and the sweeper drafts and wakes."""
        self.now += STEP_S
        self.rig.clock.advance(STEP_S)
        if self.now % BEAT_S < STEP_S:
            self.rig.rows("UPDATE worker SET last_seen_at = forge_now()")
        # As often as a worker reads its lanes.
        self._book.edition(monotonic())
        self._asleep = {row["worker_id"] for row in self.rig.rows("SELECT worker_id FROM idle")}
        for worker in self.workers:
            if worker.grant is None or worker.ends_at <= self.now:
                self._turn(worker)
        self.rig.tick.draft()
        self.rig.tick.wake_again()

    def _turn(self, worker: Simulated) -> None:
        ended, worker.grant = worker.grant, None
        if ended is None and worker.offered and worker.id in self._asleep:
            self._stand_idle()
            return
        ends = self._ends(ended)
        _, grants = self.rig.queue.finish_and_claim(
            ends, worker.lanes, FREE, nonce=worker.nonce, offered=worker.offered
        )
        if not grants:
            self._sleep(worker)
            self._stand_idle()
            return
        (worker.grant,) = grants
        if worker.offered:
            self.rig.database.rows("rise", worker_id=worker.id)
        worker.nonce, worker.offered = uuid4(), False
        self.started.setdefault(worker.grant.job_id, self.now)
        if worker.grant.nodes == 1:
            worker.ends_at = self.now + self.dice.uniform(*SINGLES_S)
        else:
            # All machines of a run end together.
            length = Random(worker.grant.job_id).uniform(*GANGS_S)  # noqa: S311  as above
            worker.ends_at = self.started[worker.grant.job_id] + length

    def _ends(self, ended: Grant | None) -> list[End]:
        if ended is None or ended.nodes == 1:
            return [End(ended.fence, Reason.SUCCEEDED)] if ended else []
        # What a run leaves behind when all of its machines have ended it.
        self.rig.rows("DELETE FROM lease WHERE token = %s", ended.token)
        return []

    def _stand_idle(self) -> None:
        if self.backlog:
            self.idle_s += STEP_S

    def _sleep(self, worker: Simulated) -> None:
        worker.offered = worker.lanes.offers
        row = self.rig.database.row(
            "sleep", worker_id=worker.id, gpu_model="", jobs=1, warm="{}", nonce=worker.nonce,
            cpus=1, memory_mb=100, disk_mb=100, gpus=0, vram_mb=0,
        )  # fmt: skip
        if row and row["gangs"]:
            self.rig.database.rows("form")

    def waits(self, *, gangs: bool) -> dict[int, float]:
        """Return how long each job waited, or has waited by now."""
        return {
            job: self.started.get(job, self.now) - at
            for job, at in self.submitted.items()
            if (self.nodes[job] > 1) is gangs
        }


def test_gangs_and_singles_both_have_bounded_waits_on_hundreds_of_workers(rig: Rig) -> None:
    fleet = Simulation(rig, 7)
    fleet.submit(WORKERS)
    gangs = [fleet.dice.randint(2, 8) for _ in range(GANGS)]
    while gangs or any(job not in fleet.started for job, n in fleet.nodes.items() if n > 1):
        fleet.step()
        fleet.submit(max(0, BACKLOG - rig.count("ready")))
        fleet.backlog = rig.count("ready")
        if gangs and fleet.now >= SINGLES_S[0] and fleet.now % EVERY_S == 0:
            fleet.submit(1, nodes=gangs.pop())
        assert fleet.now < 3600
    longest = {kind: max(fleet.waits(gangs=kind).values()) for kind in (True, False)}
    # Patience, older jobs, the end of enough jobs, and the gangs before it, one after another.
    assert longest[True] <= PATIENCE_S + 180
    assert longest[False] <= 180
    # Less than a hundredth of the fleet's time is spent on waiting for gangs.
    assert 0 < fleet.idle_s < 0.01 * WORKERS * fleet.now, (longest, fleet.idle_s, fleet.now)
