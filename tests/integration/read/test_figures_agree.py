"""What jobs took, over preemptions, lost workers and zombies: by every view, as a ledger has it.

The test itself writes down what happens. Nothing that it expects is read from the tables.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.attempt_records import CheckpointRecord
from forge_schema.model.lease import End, Usage
from forge_schema.model.states import Phase, Reason
from forge_schema.model.worker import Gpu
from forge_schema.read.jobs import JobStory
from forge_schema.read.report_definitions import REPORTS
from forge_schema.read.reports import Reports
from forge_schema.read.runs import Benchmarks
from support.gangs.runs import formed, gang
from support.past.report_sums import GROUPED, SINGLE, Sums, alike, computed, difference, grouped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from forge_schema.model.lease import Fence
    from support.queue.rig import Rig, Worker

ALL = 1_000_000
SWEEP = "bench"
LOST = "the lease ran out"
COLUMNS = """
    SELECT column_name AS name FROM information_schema.columns
    WHERE table_schema = 'public' AND table_name = %s ORDER BY ordinal_position
"""


@dataclass
class Held:
    """One attempt, or one rank of it, as the test sees it."""

    worker: Worker
    fence: Fence
    job_id: int
    attempt: int
    rank: int
    ready_at: datetime
    claimed_at: datetime
    devices: list[str] = field(default_factory=list)
    started_at: datetime | None = None
    checkpoint_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str = ""
    detail: str | None = None
    energy_j: float | None = None
    cpu_seconds: float | None = None

    @property
    def held_s(self) -> float:
        assert self.finished_at is not None
        return (self.finished_at - self.claimed_at).total_seconds()

    @property
    def ran_s(self) -> float | None:
        assert self.finished_at is not None
        if self.started_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()

    @property
    def gpu_seconds(self) -> float:
        return self.held_s * len(self.devices)

    @property
    def cost(self) -> float | None:
        price = self.worker.machine.price_per_hour
        return None if not price else self.held_s * price / 3600


class Ledger:
    """Acts on a queue, and writes down what it did."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.ended: list[Held] = []
        self.ready: dict[int, datetime] = {}
        self.lanes: dict[int, int] = {}

    def worker(self, name: str, price: float | None) -> Worker:
        gpus = [Gpu(f"GPU-{name}-{n}", "A100", 81_920) for n in range(2)]
        worker = self.rig.worker(name, accelerator="cuda", gpus=gpus, price_per_hour=price)
        worker.free = replace(worker.free, gpu_model="A100", vram_mb=81_920, gpus_in_all=2)
        return worker

    def job(self, **changes: Any) -> int:  # noqa: ANN401  fields of all types
        job_id = self.rig.submit(gpus=1, sweep=SWEEP, backoff_s=0, **changes)
        self.ready[job_id] = self.rig.clock.now
        return job_id

    def claim(self, worker: Worker, *, starts: bool = True) -> Held:
        # Longer than a job is left to other workers than those that failed it.
        self.rig.clock.advance(17)
        grant = worker.claim_one()
        now, job_id = self.rig.clock.now, grant.fence.job_id
        held = Held(worker, grant.fence, job_id, grant.attempt, 0, self.ready[job_id], now)
        return self.started(held) if starts else held

    def started(self, held: Held) -> Held:
        self.rig.clock.advance(3)
        held.started_at = self.rig.clock.now
        held.devices = [held.worker.machine.gpus[0].uuid]
        self.rig.queue.report(held.fence, Phase.RUNNING, devices=held.devices)
        return held

    def runs(self, held: Held, seconds: float, *, stores: bool = False) -> Held:
        self.rig.clock.advance(seconds)
        if stores:
            self.rig.records.add_checkpoint(held.fence, CheckpointRecord(1, "c", 1, 1))
            held.checkpoint_at = self.rig.clock.now
        return held

    def end(self, held: Held, reason: Reason, **changes: Any) -> None:  # noqa: ANN401  as above
        """Have the worker report the end, with what it used."""
        self.rig.clock.advance(11)
        self.over(held, reason)
        held.energy_j, held.cpu_seconds = 100 * held.gpu_seconds, 3 * held.held_s
        usage = Usage(held.gpu_seconds, held.energy_j, held.cost, held.cpu_seconds)
        end = End(held.fence, reason, usage=usage, **changes)
        assert self.rig.queue.finish([end])[0].accepted

    def lose(self, *held: Held) -> None:
        """Have the worker of attempts vanish, whose leases run out."""
        self.rig.expire()
        self.rig.tick.requeue()
        for one in held:
            self.over(one, Reason.WORKER_LOST, LOST)

    def over(self, held: Held, reason: Reason, detail: str | None = None) -> None:
        held.finished_at, held.reason, held.detail = self.rig.clock.now, reason.value, detail
        self.ready[held.job_id] = self.rig.clock.now
        self.ended.append(held)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a table, but of attempts those of the ledger."""
        if query != "SELECT * FROM attempt":
            return self.rig.rows(query)
        lanes = {row["id"]: row["lane_id"] for row in self.rig.rows("SELECT * FROM job")}
        return [
            {
                **{
                    name: value
                    for name, value in vars(one).items()
                    if name not in {"worker", "fence"}
                },
                "worker_id": one.worker.id,
                "lane_id": lanes[one.job_id],
                "token": one.fence.token,
                "exit_code": 3 if one.reason == "exit_code" else None,
                "gpu_seconds": one.gpu_seconds,
                "cost": one.cost,
            }
            for one in self.ended
        ]

    def of(self, job_id: int) -> list[Held]:
        return [one for one in self.ended if one.job_id == job_id]

    def spent(self, job_id: int) -> dict[str, Any]:
        """Return what a job took in all attempts, and in the last one."""
        its = self.of(job_id)
        first = [one for one in its if one.rank == 0]
        lost = any(one.energy_j is None for one in its)
        return {
            "seconds": sum(one.ran_s or 0.0 for one in first),
            "last_seconds": first[-1].ran_s if first else None,
            "gpu_seconds": total(one.gpu_seconds for one in its),
            "energy_j": None if lost else total(one.energy_j for one in its),
            "cost": total(one.cost for one in its),
        }


def total(amounts: Iterable[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def lived(ledger: Ledger) -> None:
    """Let jobs be preempted, lost, cancelled, and tried again."""
    rig, dear, free = ledger.rig, ledger.worker("dear", 36.0), ledger.worker("free", None)
    # Preempted near its end.
    ledger.job(name="preempted")
    ledger.end(ledger.runs(ledger.claim(dear), 900, stores=True), Reason.PREEMPTED)
    ledger.end(ledger.runs(ledger.claim(free), 5), Reason.SUCCEEDED)
    # Lost with its worker after a checkpoint, and without one, before it started, and a zombie.
    ledger.job(name="lost")
    lost = ledger.runs(ledger.runs(ledger.claim(dear), 400, stores=True), 100)
    ledger.lose(lost)
    ledger.lose(ledger.claim(dear, starts=False))
    ledger.lose(ledger.runs(ledger.claim(free), 50))
    assert not rig.queue.finish([End(lost.fence, Reason.SUCCEEDED)])[0].accepted
    ledger.end(ledger.runs(ledger.claim(dear), 300), Reason.SUCCEEDED)
    assert not rig.queue.finish([End(lost.fence, Reason.EXIT_CODE, 1)])[0].accepted
    # Cancelled while it runs, by a worker that lives and by one that does not; and while it waits.
    ledger.job(name="cancelled")
    held = ledger.runs(ledger.claim(dear), 60)
    rig.queue.cancel(held.job_id)
    ledger.end(held, Reason.CANCELLED)
    ledger.job(name="cancelled lost")
    held = ledger.runs(ledger.claim(dear), 60)
    rig.queue.cancel(held.job_id)
    ledger.lose(held)
    rig.queue.cancel(ledger.job(name="never"))
    # Failed until its retries are used up, and tried again on request.
    failed = ledger.job(name="failed", max_failures=1)
    for _ in range(2):
        held = ledger.runs(ledger.claim(dear), 70)
        ledger.end(held, Reason.EXIT_CODE, exit_code=3)
    rig.queue.retry(failed)
    ledger.ready[failed] = rig.clock.now
    ledger.end(ledger.runs(ledger.claim(free), 70), Reason.SUCCEEDED)
    gangs(ledger, [dear, free])


def gangs(ledger: Ledger, workers: list[Worker]) -> None:
    """Lose a gang with one of its machines, then let it succeed."""
    rig = ledger.rig
    job_id = gang(rig, 2, gpus=1, sweep=SWEEP, backoff_s=0, name="gang")
    ledger.ready[job_id] = rig.clock.now
    for attempt in (1, 2):
        rig.clock.advance(9)
        run = formed(rig, job_id, workers)
        members = [
            Held(worker, fence, job_id, attempt, rank, ledger.ready[job_id], rig.clock.now)
            for rank, (worker, fence) in enumerate(zip(workers, run.fences, strict=True))
        ]
        for one in members:
            ledger.started(one)
        rig.clock.advance(200)
        if attempt == 1:
            # All leases run out at once.
            ledger.lose(*members)
        else:
            for one in members:
                ledger.end(one, Reason.SUCCEEDED)
    for worker in workers:
        worker.renew()
    # One that runs now.
    ledger.job(name="running")
    ledger.runs(ledger.claim(workers[0]), 40)


@pytest.fixture(scope="module")
def ledger(shared_rig: Rig) -> Ledger:
    made = Ledger(shared_rig)
    lived(made)
    return made


def same(found: Sequence[dict[str, Any]], wanted: Sequence[dict[str, Any]], *keys: str) -> None:
    assert wanted
    assert difference(found, wanted, keys) is None


@pytest.mark.parametrize("name", sorted({*GROUPED, *SINGLE}))
def test_every_view_has_what_happened(ledger: Ledger, name: str) -> None:
    rig, reports = ledger.rig, Reports(ledger.rig.database)
    sums = Sums(ledger.rows, rig.clock.now)
    columns = [row["name"] for row in rig.rows(COLUMNS, name)]
    wanted, keys = computed(sums, name, columns)
    assert difference(reports.rows(name, count=ALL), wanted, keys) is None
    if name in GROUPED and wanted:
        pieces, made = GROUPED[name]
        for key in REPORTS[name].keys:
            found = reports.rows(name, by=[key], count=ALL)
            assert difference(found, grouped(pieces(sums), [key], made), [key]) is None


def test_a_job_took_the_same_wherever_one_looks(ledger: Ledger) -> None:
    rig = ledger.rig
    reports = Reports(rig.database)
    runs = {row["job_id"]: row for row in reports.rows("runs", count=ALL)}
    ended = {row["job_id"]: row for row in reports.rows("benchmark_results", count=ALL)}
    cost = {row["job_id"]: row for row in reports.rows("cost", by=["job_id"], count=ALL)}
    jobs = {row["job_id"]: row for row in reports.rows("jobs", count=ALL)}
    points = Benchmarks(rig.database, owner="ann", actor="user:ann").points(SWEEP)
    assert len(runs) == len(points) == len(ended) + 1 == 8
    for point in points:
        job_id = point["job_id"]
        if job_id not in ended:
            assert (point["name"], point["seconds"]) == ("running", 40)
            continue
        wanted = ledger.spent(job_id)
        story = JobStory(rig.database, job_id).spent()
        shown = {
            "point": point,
            "benchmark_results": ended[job_id],
            "runs": runs[job_id],
            "job": story,
            **({"cost": cost[job_id]} if job_id in cost else {}),
        }
        for where, row in shown.items():
            for figure in wanted.keys() & row.keys():
                assert alike(row[figure], wanted[figure]), (where, point["name"], figure, row)
        status = rig.jobs.job(job_id)
        last = [one for one in ledger.of(job_id) if one.attempt == status["attempt"]]
        began = last[0].started_at if last else None
        assert status["started_at"] == jobs[job_id]["started_at"] == began
        # Of a gang, for as long as any of its ranks ran.
        assert status["ran_s"] == max((one.ran_s or 0.0 for one in last), default=None)
    whole = reports.rows("benchmark_results", by=["sweep"], count=ALL)
    for figure in ("seconds", "last_seconds", "gpu_seconds", "cost"):
        assert alike(whole[0][figure], total(ledger.spent(job)[figure] for job in ended))


def test_every_end_is_in_the_trail_once_and_in_the_history(ledger: Ledger) -> None:
    rig = ledger.rig
    told = rig.rows(
        "SELECT job_id, token, detail ->> 'reason' AS reason FROM audit WHERE action = 'ended'"
    )
    wanted = [
        {"job_id": one.job_id, "token": one.fence.token, "reason": one.reason}
        for one in ledger.ended
    ]
    same(told, wanted, "job_id", "token")
    history = Reports(rig.database).rows("attempt_history", count=ALL)
    figures = ("gpu_seconds", "cost", "energy_j", "started_at", "finished_at", "held_s", "reason")
    same(
        [{name: row[name] for name in ("token", *figures)} for row in history],
        [
            {"token": one.fence.token, **{f: getattr(one, f) for f in figures}}
            for one in ledger.ended
        ],
        "token",
    )


def test_what_a_lost_worker_did_after_its_checkpoint_is_wasted(ledger: Ledger) -> None:
    (row,) = [
        row
        for row in Reports(ledger.rig.database).rows("cost", by=["name"])
        if row["name"] == "lost"
    ]
    lost = ledger.ended[2]
    assert lost.checkpoint_at is not None
    kept_s = (lost.checkpoint_at - lost.claimed_at).total_seconds()
    useful = 36.0 / 3600 * (kept_s + ledger.of(lost.job_id)[-1].held_s)
    assert alike(row["useful_cost"], useful)
    assert row["wasted_cost"] > 0
    assert row["goodput"] < 0.8
