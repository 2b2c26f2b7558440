"""Who is woken: as many idle workers as there are jobs, of those that can run them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.database.pool import run
from forge_schema.model.lease import End
from forge_schema.model.states import Command, Reason
from forge_schema.model.worker import Gpu
from forge_schema.queue.lanes import Lanes
from forge_schema.sweeper.tick import WAKE_PATIENCE
from forge_schema.wake import ANY, Hint, Sleepers
from forge_worker.queue.gateway import SqlGateway
from support.queue.rig import spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig, Worker

H100 = {"gpus": 1, "gpu_model": "h100", "vram_mb": 80_000}


@dataclass
class Process:
    """A process that listens, with one worker or more."""

    rig: Rig
    sleepers: Sleepers = field(default_factory=Sleepers)

    def look(self, worker: Worker, **free: Any) -> list[Grant]:  # noqa: ANN401  fields of Capacity
        """Claim as a worker does."""
        room = replace(worker.free, **free)
        self.sleepers.looks(worker.id, room)
        grants = self.rig.queue.claim(worker.lanes, room)
        self.sleepers.looked(self.rig.database, worker.id, room, has_jobs=bool(grants))
        return grants

    def asleep(self, name: str, **machine: Any) -> Worker:  # noqa: ANN401  fields of Machine
        """Return a worker that found nothing."""
        worker = self.rig.worker(name, **machine)
        assert self.look(worker) == []
        return worker


@pytest.fixture
def process(rig: Rig) -> Process:
    return Process(rig)


def woken(heard: Any) -> list[int]:  # noqa: ANN401  what `listening` yields
    """Return the workers that the notifications since the last call name."""
    named: list[int] = []
    while payload := heard():
        named += Hint.read(payload[0]).workers
    return sorted(named)


def test_a_submit_wakes_as_many_workers_as_it_has_jobs(process: Process) -> None:
    rig = process.rig
    workers = {process.asleep(f"w{n}").id for n in range(30)}
    with rig.listening() as heard:
        for jobs, left in ((1, 29), (20, 9), (20, 0), (5, 0)):
            before = rig.count("idle")
            rig.submit_many(jobs)
            named = woken(heard)
            assert len(named) == len(set(named)) == before - left
            assert rig.count("idle") == left
            workers -= set(named)
    assert not workers


def test_jobs_of_several_lanes_wake_different_workers(process: Process) -> None:
    workers = [process.asleep(f"w{n}").id for n in range(12)]
    with process.rig.listening() as heard:
        process.rig.queue.submit([spec(), spec(cpus=2), spec(queue="other")] * 3)
        named = woken(heard)
    assert len(set(named)) == 9
    assert set(named) < set(workers)


GPU = Gpu("GPU-1", "NVIDIA H100 80GB HBM3", 81_559)
OTHER = Gpu("GPU-2", "NVIDIA A100-SXM4-80GB", 81_920)


@pytest.mark.parametrize(("wanted", "first"), [("h100*|a100*", GPU), ("a100*|h100*", OTHER)])
def test_of_several_models_the_first_that_is_wanted_is_woken(
    process: Process, wanted: str, first: Gpu
) -> None:
    workers = {}
    for gpu in (GPU, OTHER):
        worker = process.rig.worker(gpu.name, gpus=[gpu], accelerator="cuda")
        process.look(worker, gpus=1, gpu_model=gpu.name, vram_mb=gpu.vram_mb, gpus_in_all=1)
        workers[worker.id] = gpu
    with process.rig.listening() as heard:
        process.rig.submit(gpus=1, gpu_model=wanted)
        assert [workers[worker] for worker in woken(heard)] == [first]


@pytest.mark.parametrize(
    "needs",
    [
        {"cpus": 8},
        {"memory_mb": 2_000},
        {"disk_mb": 2_000},
        {"labels": {"zone": "moon"}},
        {"gpus": 1},
        {"accelerator": "cuda"},
    ],
    ids=str,
)
def test_none_is_woken_that_cannot_run_the_job(process: Process, needs: dict[str, Any]) -> None:
    process.asleep("small", cpus=4, memory_mb=1_000, disk_mb=1_000)
    able = process.rig.worker("able", labels={"zone": "moon"}, gpus=[GPU], accelerator="cuda")
    process.look(able, gpus=1, gpu_model=GPU.name, vram_mb=GPU.vram_mb, gpus_in_all=1)
    with process.rig.listening() as heard:
        process.rig.submit_many(2, **needs)
        assert woken(heard) == [able.id]


@pytest.mark.parametrize(
    "free",
    [
        {"gpus": 1, "gpu_model": "NVIDIA A100-SXM4-80GB", "vram_mb": 81_920},
        {"gpus": 0, "gpu_model": GPU.name, "vram_mb": GPU.vram_mb},
        {"gpus": 1, "gpu_model": GPU.name, "vram_mb": 40_000},
        {"gpus": 1, "gpu_model": GPU.name, "vram_mb": GPU.vram_mb, "cpus": 0.5},
        {"gpus": 1, "gpu_model": GPU.name, "vram_mb": GPU.vram_mb, "memory_mb": 0},
    ],
    ids=str,
)
def test_none_is_woken_that_has_too_little_free(process: Process, free: dict[str, Any]) -> None:
    other = Gpu("GPU-2", "NVIDIA A100-SXM4-80GB", 81_920)
    worker = process.rig.worker(gpus=[GPU, other], accelerator="cuda")
    process.look(worker, gpus_in_all=1, **free)
    assert process.rig.count("idle") == 1
    with process.rig.listening() as heard:
        process.rig.submit(**H100)
        assert woken(heard) == []


def test_none_is_woken_that_takes_no_jobs_now(process: Process) -> None:
    rig = process.rig
    draining, left, silent, restarted = (process.asleep(f"w{n}") for n in range(4))
    rig.registry.command(draining.id, Command.DRAIN)
    rig.registry.disconnect(left.id, left.machine.boot_id)
    rig.rows("UPDATE worker SET status = 'offline' WHERE id = %s", silent.id)
    rig.worker(restarted.name)
    with rig.listening() as heard:
        rig.submit_many(4)
        assert woken(heard) == []


def test_one_that_leaves_or_is_silent_is_forgotten(process: Process) -> None:
    rig = process.rig
    left, silent = process.asleep("left"), process.asleep("silent")
    rig.registry.disconnect(left.id, left.machine.boot_id)
    assert rig.rows("SELECT worker_id FROM idle") == [{"worker_id": silent.id}]
    rig.clock.advance(3600)
    rig.tick.run()
    assert rig.count("idle") == 0


def test_one_that_took_other_work_is_not_chosen(process: Process) -> None:
    busy, idle = process.asleep("busy"), process.asleep("idle")
    process.rig.rows("TRUNCATE idle")
    process.rig.submit()
    assert process.look(busy)
    process.sleepers.forget()
    assert process.look(idle) == []
    with process.rig.listening() as heard:
        process.rig.submit()
        assert woken(heard) == [idle.id]


@pytest.mark.parametrize("deaf", [False, True], ids=["", "deaf for a while"])
def test_a_worker_that_found_a_job_by_itself_is_no_longer_recorded(
    process: Process, *, deaf: bool
) -> None:
    worker = process.asleep("w")
    # Too small a room for this worker's record to be taken.
    process.look(worker, cpus=0.5)
    process.rig.submit()
    if deaf:
        assert process.sleepers.woken(ANY, [worker.id]) == {worker.id}
    assert process.rig.count("idle") == 1
    assert process.look(worker)
    assert process.rig.count("idle") == 0


def test_two_submits_at_once_wake_two_workers(process: Process) -> None:
    workers = {process.asleep(f"w{n}").id for n in range(2)}
    with process.rig.listening() as heard:
        with process.rig.uncommitted() as other:
            other.submit([spec(owner="bob", queue="other", cpus=2)])
            process.rig.submit()
        assert set(woken(heard)) == workers


def test_a_thousand_jobs_wake_a_thousand_workers(process: Process) -> None:
    rig = process.rig
    # Their ids are as long as ids get.
    rig.rows("ALTER TABLE worker ALTER id RESTART WITH 9000000000000000000")
    one = process.asleep("w")
    columns = [
        row["name"]
        for row in rig.rows(
            "SELECT column_name AS name FROM information_schema.columns"
            " WHERE table_name = 'worker' AND column_name NOT IN ('id', 'name', 'token_hash')"
        )
    ]
    rig.rows(
        f"INSERT INTO worker (name, {', '.join(columns)}) SELECT 'w' || n, {', '.join(columns)}"
        f" FROM worker, generate_series(1, 999) AS n"
    )
    rig.rows(
        "INSERT INTO idle SELECT (jsonb_populate_record(idle, to_jsonb(worker) - 'memory_mb')).*"
        " FROM idle, (SELECT id AS worker_id FROM worker WHERE id > %s) AS worker",
        one.id,
    )
    with rig.listening() as heard:
        rig.submit_many(1000)
        assert len(set(woken(heard))) == 1000
    assert rig.count("idle") == 0


def moving(rig: Rig, how: str) -> Callable[[], object]:
    """Return what makes a job ready in one of the ways other than a submit."""
    if how == "promoted":
        rig.submit(delay_s=10)
        rig.clock.advance(11)
        return rig.tick.run
    job = rig.submit()
    (grant,) = rig.worker("taker").claim()
    if how == "released":
        return partial(rig.queue.release, grant.fence)
    if how == "expired":
        rig.expire()
        return rig.tick.run
    rig.finish(grant, Reason.BUNDLE_CORRUPT)
    return partial(rig.queue.retry, job)


@pytest.mark.parametrize("how", ["promoted", "released", "expired", "retried"])
def test_a_job_that_becomes_ready_wakes_one_worker(process: Process, how: str) -> None:
    move = moving(process.rig, how)
    sleeping = [process.asleep(f"w{n}").id for n in range(3)]
    with process.rig.listening() as heard:
        move()
        (one,) = woken(heard)
    assert one in sleeping


def test_resuming_a_queue_wakes_as_many_as_jobs_wait(process: Process) -> None:
    rig = process.rig
    rig.admin.set_queue("default", {"paused": True})
    for n in range(5):
        process.asleep(f"w{n}")
    with rig.listening() as heard:
        rig.submit_many(3)
        assert woken(heard) == []
        rig.admin.set_queue("default", {"paused": False})
        assert len(woken(heard)) == 3


def test_a_higher_limit_wakes_workers(process: Process) -> None:
    rig = process.rig
    rig.admin.set_queue("default", {"max_jobs": 0, "max_gpus": None})
    rig.submit()
    worker = process.asleep("w")
    with rig.listening() as heard:
        rig.admin.set_queue("default", {"max_jobs": 1, "max_gpus": None})
        assert woken(heard) == [worker.id]


def test_a_slot_given_back_wakes_a_worker_for_another_lane(process: Process) -> None:
    rig = process.rig
    rig.admin.set_queue("default", {"max_jobs": 1, "max_gpus": None})
    rig.submit()
    (grant,) = rig.worker("taker").claim()
    rig.submit(labels={"zone": "moon"})
    able = process.asleep("able", labels={"zone": "moon"})
    with rig.listening() as heard:
        rig.finish(grant, Reason.BUNDLE_CORRUPT)
        assert woken(heard) == [able.id]


def test_a_job_whose_wake_up_was_lost_wakes_another_worker(process: Process) -> None:
    rig = process.rig
    workers = {process.asleep(f"w{n}").id for n in range(3)}
    rig.submit()
    rig.clock.advance(WAKE_PATIENCE.total_seconds())
    with rig.listening() as heard:
        rig.tick.wake_again()
        assert heard() == []
        rig.clock.advance(0.001)
        rig.tick.wake_again()
        (one,) = woken(heard)
        rig.submit(priority=9)
        (other,) = woken(heard)
        rig.tick.wake_again()
        # The job in front is young.
        assert heard() == []
    assert {one, other} < workers
    assert one != other


def test_no_more_are_woken_again_than_a_limit_lets_run(process: Process) -> None:
    rig = process.rig
    rig.admin.set_queue("default", {"max_jobs": 2, "max_gpus": None})
    rig.submit_many(5)
    rig.worker("taker").claim_one()
    for n in range(3):
        assert process.look(rig.worker(f"w{n}"), cpus=0.5) == []
    rig.rows("UPDATE idle SET cpus = 1")
    rig.clock.advance(3)
    with rig.listening() as heard:
        rig.tick.wake_again()
        assert len(woken(heard)) == 1


@pytest.mark.parametrize("why", ["nobody is idle", "nobody can run it", "paused", "empty"])
def test_where_nobody_can_be_woken_nothing_is_written_or_locked(process: Process, why: str) -> None:
    rig = process.rig
    if why != "nobody is idle":
        process.asleep("w")
    if why != "empty":
        rig.submit(**(H100 if why == "nobody can run it" else {}))
    if why == "paused":
        rig.admin.set_queue("default", {"paused": True})
        process.asleep("v")
    rig.clock.advance(60)
    with rig.listening() as heard, rig.database.transaction() as connection:
        run(connection, "wake_again", {"patience": WAKE_PATIENCE})
        # Whoever has written, notified or locked a row has a number.
        (row,) = connection.execute("SELECT pg_current_xact_id_if_assigned() AS xid").fetchall()
        assert row["xid"] is None
        assert heard() == []


def test_one_that_is_recorded_while_a_submit_commits_looks_again(process: Process) -> None:
    rig = process.rig
    early = process.asleep("early", cpus=0.5)
    late = rig.worker("late")
    with rig.listening() as heard:
        with rig.uncommitted() as other:
            # It sees nobody who could run the job, and nobody sees the job.
            other.submit([spec(owner="bob")])
            assert process.look(late) == []
        (payload,) = heard()
    hint = Hint.read(payload)
    assert not hint.workers
    assert process.sleepers.woken(hint, [early.id, late.id]) == {late.id}
    assert process.look(late)


def test_one_that_is_looking_is_woken_by_any_submit(process: Process) -> None:
    rig = process.rig
    worker = rig.worker()
    woke: list[set[int]] = []

    def submit() -> None:
        with rig.listening() as heard:
            rig.submit()
            woke.append(process.sleepers.woken(Hint.read(heard()[0]), [worker.id]))

    rig.database.meanwhile["finish_and_claim"] = submit
    assert process.look(worker) == []
    assert woke == [{worker.id}]
    assert process.look(worker)


def test_one_that_is_chosen_while_it_is_recorded_does_not_believe_in_its_record(
    process: Process,
) -> None:
    rig = process.rig
    worker = rig.worker()

    def take() -> None:
        with rig.listening() as heard:
            rig.submit()
            assert process.sleepers.woken(Hint.read(heard()[0]), [worker.id]) == {worker.id}
        rig.queue.cancel(1)

    rig.database.meanwhile["sleep"] = take
    assert process.look(worker) == []
    assert rig.count("idle") == 0
    assert process.look(worker) == []
    assert rig.count("idle") == 1


def test_looks_of_a_sleeping_worker_write_nothing(process: Process) -> None:
    worker = process.asleep("w")
    process.rig.database.names()
    for _ in range(3):
        assert process.look(worker) == []
    assert process.rig.database.names() == ["match", "finish_and_claim"] * 3


def test_those_who_see_a_hint_for_others_sleep_on(process: Process) -> None:
    workers = [process.asleep(f"w{n}").id for n in range(10)]
    with process.rig.listening() as heard:
        process.rig.submit()
        hint = Hint.read(heard()[0])
    assert process.sleepers.woken(hint, workers) == hint.workers
    assert len(hint.workers) == 1


def test_every_worker_looks_and_is_recorded_anew_once_hints_may_have_been_missed(
    process: Process,
) -> None:
    workers = [process.asleep(f"w{n}") for n in range(3)]
    # Others took their records, and the notification was lost.
    process.rig.rows("TRUNCATE idle")
    ids = [worker.id for worker in workers]
    assert process.sleepers.woken(ANY, ids) == set(ids)
    assert [process.look(worker) for worker in workers] == [[]] * 3
    assert process.rig.count("idle") == 3


def test_a_worker_that_hears_nothing_is_not_recorded(rig: Rig) -> None:
    deaf = Process(rig, Sleepers(hears=False))
    deaf.asleep("w")
    assert rig.count("idle") == 0


def test_a_direct_worker_is_recorded_by_its_gateway(rig: Rig) -> None:
    for hears in (True, False):
        gateway = SqlGateway(rig.database, name=f"w{hears}", ttl=rig.queue.ttl, hears=hears)
        gateway.register(rig.worker("as this").machine)
        assert gateway.finish_and_claim([], rig.worker("as this").free, 1) == ([], [])
    assert rig.count("idle") == 1
    with rig.listening() as heard:
        rig.submit()
        (payload,) = heard()
    assert not gateway.wakes(Hint.read(payload))


def test_a_worker_whose_success_released_a_job_is_woken_for_it(rig: Rig) -> None:
    gateway = SqlGateway(rig.database, name="w", ttl=rig.queue.ttl, hears=True)
    machine, free = rig.worker("as this").machine, rig.worker("as this").free
    gateway.register(machine)
    needed = rig.submit()
    (grant,) = gateway.finish_and_claim([], free, 1)[1]
    following = rig.submit(after_ok=[needed])
    # Another look would find the job; without watermarks there is none.
    gateway._lanes = Lanes(rig.database, gateway.worker_id)
    with rig.listening() as heard:
        _, granted = gateway.finish_and_claim([End(grant.fence, Reason.SUCCEEDED)], free, 1)
        # The claim's statement is that of the success, and does not see what it releases.
        assert granted == []
        (payload,) = heard()
    assert gateway.wakes(Hint.read(payload))
    assert [one.job_id for one in gateway.finish_and_claim([], free, 1)[1]] == [following]


def test_the_report_of_an_end_looks_once_and_the_next_look_records_the_worker(rig: Rig) -> None:
    gateway = SqlGateway(rig.database, name="w", ttl=rig.queue.ttl, hears=True)
    machine, free = rig.worker("as this").machine, rig.worker("as this").free
    gateway.register(machine)
    rig.submit()
    (grant,) = gateway.finish_and_claim([], free, 1)[1]
    end = End(grant.fence, Reason.SUCCEEDED)
    for ends, last in (([end], "finish_and_claim"), ([], "sleep")):
        rig.database.ran.clear()
        assert gateway.finish_and_claim(ends, free, 1)[1] == []
        names = [name for name, _ in rig.database.ran]
        assert (names.count("finish_and_claim"), names[-1]) == (1, last)
