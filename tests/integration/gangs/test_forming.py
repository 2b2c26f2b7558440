"""Gangs form of idle workers: all of the machines at once, or none."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.explain import explain
from forge_schema.model.lease import End, Fence
from forge_schema.model.states import Command, Reason, State
from forge_schema.model.worker import Gpu
from forge_schema.wake import ANY, Hint
from forge_worker.queue.gateway import SqlGateway
from support.at_once import at_once
from support.gangs.gang_workers import MEMBERS, GangWorker, asleep, gang_worker
from support.gangs.runs import running
from support.queue.rig import spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.queue.rig import Rig

H100: dict[str, Any] = {"gpu_model": "H100", "vram_mb": 80_000, "gpus_in_all": 1}
NONE = "SELECT job_id FROM lease WHERE nodes > 1"


def members(rig: Rig, job: int) -> list[dict[str, Any]]:
    """Return the leases of a gang, by rank, which must be whole."""
    found = [row for row in rig.rows(MEMBERS) if row["job_id"] == job]
    assert [row["rank"] for row in found] == list(range(len(found)))
    for name in ("token", "nonce", "worker_id"):
        assert len({row[name] for row in found}) == len(found)
    assert all(row["nodes"] == len(found) for row in found)
    return found


def ranks(workers: Sequence[GangWorker], job: int) -> list[int]:
    """Have the workers look, and return the ranks that they were granted of a gang."""
    granted = [grant for worker in workers for grant in worker.look()]
    assert all((grant.job_id, grant.attempt) == (job, 1) for grant in granted)
    assert len({grant.nodes for grant in granted}) <= 1
    return sorted(grant.rank for grant in granted)


def test_a_submitted_gang_takes_idle_workers_and_names_them(rig: Rig) -> None:
    workers = asleep(rig, 4)
    with rig.listening() as heard:
        job = rig.submit(nodes=3)
        hint = Hint.read(heard()[0])
    found = members(rig, job)
    assert len(found) == 3
    assert {row["worker_id"] for row in found} == set(hint.workers)
    assert rig.places(job) == ["lease"] * 3
    # The fourth sleeps on.
    assert rig.count("idle") == 1
    assert ranks(workers, job) == [0, 1, 2]
    assert ranks(workers, job) == []


def test_a_gang_that_waits_forms_once_the_last_worker_lies_down(rig: Rig) -> None:
    job = rig.submit(nodes=3)
    workers = asleep(rig, 2)
    assert rig.rows(NONE) == []
    assert rig.places(job) == ["ready"]
    workers += [gang_worker(rig, "last")]
    assert ranks(workers[2:], job) == []
    assert len(members(rig, job)) == 3
    assert ranks(workers, job) == [0, 1, 2]


def test_workers_without_an_address_or_a_named_claim_are_in_no_gang(rig: Rig) -> None:
    asleep(rig, 1)
    gang_worker(rig, "old", address=None).look()
    draining, silent = gang_worker(rig, "draining"), gang_worker(rig, "silent")
    for worker in (draining, silent):
        worker.look()
    rig.registry.command(draining.id, Command.DRAIN)
    rig.rows("UPDATE worker SET status = 'offline' WHERE id = %s", silent.id)
    rig.worker("of an unnamed claim", address="10.0.0.1")
    rig.rows(
        "INSERT INTO idle (worker_id, gpu_model, boot_id, cpus, memory_mb, disk_mb, gpus, vram_mb)"
        " SELECT id, '', boot_id, cpus, memory_mb, disk_mb, 0, 0 FROM worker"
        " WHERE name LIKE 'of a%%'"
    )
    job = rig.submit(nodes=2)
    rig.tick.run()
    assert rig.rows(NONE) == []
    assert rig.places(job) == ["ready"]


@pytest.mark.parametrize(
    "needs",
    [{"cpus": 2}, {"memory_mb": 101}, {"gpus": 1}, {"labels": {"zone": "moon"}}, {"disk_mb": 200}],
    ids=str,
)
def test_a_gang_waits_where_one_machine_too_few_has_what_it_needs(
    rig: Rig, needs: dict[str, Any]
) -> None:
    asleep(rig, 3)
    able = [
        gang_worker(
            rig, f"able{n}", cpus=4, memory_mb=400, disk_mb=400, labels={"zone": "moon"},
            gpus=[Gpu(f"GPU-{n}", "H100", 80_000)], accelerator="cuda",
        )
        for n in range(3)
    ]  # fmt: skip
    for one in able:
        one.look(**H100)
    waits, forms = rig.submit(nodes=4, **needs), rig.submit(nodes=3, **needs)
    assert rig.places(waits) == ["ready"]
    assert {row["worker_id"] for row in members(rig, forms)} == {one.id for one in able}
    assert sorted(one.look(**H100)[0].rank for one in able) == [0, 1, 2]


def test_a_gang_gets_only_what_is_free(rig: Rig) -> None:
    workers = [gang_worker(rig, f"w{n}", cpus=8) for n in range(2)]
    for worker in workers:
        worker.look(cpus=2)
    job = rig.submit(nodes=2, cpus=4)
    assert rig.places(job) == ["ready"]
    for worker in workers:
        worker.look(cpus=4)
    assert len(members(rig, job)) == 2


def test_all_machines_of_a_gang_have_the_same_label_if_it_wants_that(rig: Rig) -> None:
    zones = ["eu", "us", "eu", "us", "us", None]
    workers = [
        gang_worker(rig, f"w{n}", labels={"zone": zone} if zone else {})
        for n, zone in enumerate(zones)
    ]
    for worker in workers:
        worker.look()
    waits, forms = rig.submit(nodes=4, same="zone"), rig.submit(nodes=3, same="zone")
    assert rig.places(waits) == ["ready"]
    expected = [worker.id for worker, zone in zip(workers, zones, strict=True) if zone == "us"]
    assert sorted(row["worker_id"] for row in members(rig, forms)) == expected


def of_two_models(rig: Rig) -> list[GangWorker]:
    """Return three workers, of which the second has another model of GPU."""
    workers = []
    for n, model in enumerate(("A100", "H100", "A100")):
        gpu = Gpu(f"GPU-{n}", model, 80_000)
        workers.append(gang_worker(rig, f"g{n}", gpus=[gpu], accelerator="cuda"))
        workers[-1].look(**{**H100, "gpu_model": model})
    return workers


def test_all_gpus_of_a_gang_are_of_one_model(rig: Rig) -> None:
    one, _, three = of_two_models(rig)
    waits, forms = rig.submit(nodes=3, gpus=1), rig.submit(nodes=2, gpus=1)
    assert rig.places(waits) == ["ready"]
    assert {row["worker_id"] for row in members(rig, forms)} == {one.id, three.id}
    assert explain(rig.database, waits).text == (
        "only 2 of the 3 machines that it needs have one model of GPU; --mixed allows others"
        " (3 checked)"
    )


def test_a_mixed_gang_takes_any_gpus(rig: Rig) -> None:
    workers = of_two_models(rig)
    job = rig.submit(nodes=3, gpus=1, mixed=True)
    assert {row["worker_id"] for row in members(rig, job)} == {worker.id for worker in workers}


def test_of_two_gangs_and_three_workers_one_forms_and_the_other_holds_no_worker(rig: Rig) -> None:
    workers = asleep(rig, 3)
    jobs = [job for nodes in (2, 2) for job in [rig.submit(nodes=nodes)]]
    assert [len(members(rig, job)) for job in jobs] == [2, 0]
    assert rig.count("idle") == 1
    assert ranks(workers, jobs[0]) == [0, 1]
    single = rig.submit()
    (grant,) = [grant for worker in workers[2:] for grant in worker.look()]
    assert grant.job_id == single


def test_the_gang_with_the_highest_priority_is_tried_first_and_those_behind_it_too(
    rig: Rig,
) -> None:
    late, first, large = (
        rig.submit(nodes=nodes, priority=priority) for nodes, priority in ((2, 0), (2, 5), (9, 9))
    )
    asleep(rig, 2)
    assert [len(members(rig, job)) for job in (late, first, large)] == [0, 2, 0]


def test_a_paused_queue_and_a_limit_hold_a_gang_back(rig: Rig) -> None:
    gpu: dict[str, Any] = {"gpus": [Gpu("GPU-1", "H100", 80_000)], "accelerator": "cuda"}
    workers = [gang_worker(rig, f"w{n}", **gpu) for n in range(3)]
    for worker in workers:
        worker.look(**H100)
    rig.admin.set_queue("default", {"paused": True})
    job = rig.submit(nodes=3, gpus=1)
    rig.admin.set_queue("default", {"max_jobs": None, "max_gpus": 2})
    rig.admin.set_queue("default", {"paused": False})
    assert rig.places(job) == ["ready"]
    rig.admin.set_queue("default", {"max_jobs": 1, "max_gpus": 3})
    rig.database.rows("form")
    assert len(members(rig, job)) == 3
    taken = rig.rows("SELECT kind, count(*) FROM slot WHERE job_id = %s GROUP BY kind", job)
    assert {row["kind"]: row["count"] for row in taken} == {"queue_gpus": 3, "queue_jobs": 1}
    assert rig.database.rows("uneven_limits") == []
    (queue,) = rig.admin.queues()
    assert (queue["running"], queue["gpus"]) == (1, 3)


def test_a_gang_forms_again_with_its_attempts_counted(rig: Rig) -> None:
    asleep(rig, 2)
    job = rig.submit(nodes=2)
    # As a run of two machines ends: its leases go at once, and the job is ready again.
    rig.rows("DELETE FROM lease WHERE rank = 1")
    rig.rows("UPDATE lease SET nodes = 1")
    grant = rig.row("SELECT job_id, token, nonce, worker_id FROM lease")
    fence = Fence(grant["job_id"], grant["token"], grant["nonce"])
    rig.queue.finish([End(fence, Reason.PREEMPTED)])
    asleep(rig, 2)
    assert [row["attempt"] for row in members(rig, job)] == [2, 2]


def test_a_cancelled_gang_takes_no_worker(rig: Rig) -> None:
    job = rig.submit(nodes=2)
    workers = asleep(rig, 1)
    assert rig.queue.cancel(job) is State.CANCELLED
    workers += [gang_worker(rig, "last")]
    assert ranks(workers, job) == []
    assert rig.rows(NONE) == []


@pytest.mark.parametrize("verb", ["cancel", "form"])
def test_a_cancel_while_it_forms_meets_it_before_or_after(rig: Rig, verb: str) -> None:
    asleep(rig, 1)
    job = rig.submit(nodes=2)
    workers = [gang_worker(rig, f"x{n}") for n in range(4)]
    first: list[Any] = [lambda: rig.queue.cancel(job)]
    rest: list[Any] = [partial(worker.look) for worker in workers]
    at_once(*(first + rest if verb == "cancel" else rest + first))
    found = members(rig, job)
    assert len(found) in {0, 2}
    if found:
        asked = rig.rows("SELECT asked FROM lease")
        assert rig.queue.cancel(job) is State.RUNNING
        assert len(asked) == 2
    else:
        assert rig.state(job) is State.CANCELLED


def test_singles_and_gangs_at_the_same_moment_never_take_half_of_a_gang(rig: Rig) -> None:
    workers = asleep(rig, 16)
    gangs = [rig.submit(nodes=nodes, priority=n) for n, nodes in enumerate((17, 17, 17))]
    calls: list[Any] = [partial(rig.submit, nodes=nodes) for nodes in (2, 3, 4, 5)]
    calls += [partial(rig.submit) for _ in range(6)]
    jobs = at_once(*calls)
    for _ in range(4):
        at_once(*(partial(_look_once, worker) for worker in workers))
        rig.database.rows("form")
    # Who met another one's lock each time, or missed a hint, is served now, one after another.
    for worker in workers:
        assert isinstance(worker.gateway, SqlGateway)
        worker.gateway.wakes(ANY)
        _look_once(worker)
        rig.database.rows("form")
    for worker in workers:
        _look_once(worker)
    sizes = {job: len(members(rig, job)) for job in jobs[:4]}
    assert {job: size for job, size in sizes.items() if size} == {
        job: nodes for job, nodes in zip(jobs[:4], (2, 3, 4, 5), strict=True) if sizes[job]
    }
    held = [row["worker_id"] for row in rig.rows("SELECT worker_id FROM lease")]
    assert len(held) == len(set(held))
    # Sixteen machines hold what fits: six singles, and gangs until the next one needs too many.
    granted = [grant for worker in workers for grant in worker.grants]
    assert {grant.fence for grant in granted} == {
        grant.fence for grant in granted if rig.places(grant.job_id)[0] == "lease"
    }
    assert len(granted) == rig.count("lease")
    assert all(rig.places(job) == ["ready"] for job in gangs)
    waiting = [job for job in jobs if rig.places(job) == ["ready"]]
    nodes = dict(zip(jobs, (2, 3, 4, 5, 1, 1, 1, 1, 1, 1), strict=True))
    assert all(nodes[job] > 16 - len(held) for job in waiting)


def _look_once(worker: GangWorker) -> None:
    """Claim, unless the worker has what fills it."""
    if not worker.grants:
        worker.look()


def test_a_worker_that_took_a_single_while_it_was_chosen_hears_of_both(rig: Rig) -> None:
    workers = asleep(rig, 2)

    def gang() -> None:
        rig.queue.submit([spec(nodes=2)])

    rig.rows("UPDATE idle SET cpus = 0.5")
    single = rig.submit()
    rig.rows("UPDATE idle SET cpus = 1")
    rig.database.meanwhile["finish_and_claim"] = gang
    granted = workers[0].look()
    assert sorted((grant.job_id, grant.nodes) for grant in granted) == [
        (single, 1),
        (single + 1, 2),
    ]


def test_a_run_whose_workers_lie_idle_by_then_forms_again_as_it_is_settled(rig: Rig) -> None:
    run = running(rig, 2)
    idle = asleep(rig, 2)
    run.end(1, Reason.PREEMPTED)
    run.end(0, Reason.RUN_ENDED)
    leases = rig.rows(MEMBERS)
    assert [(row["attempt"], row["rank"], row["worker_id"]) for row in leases] == [
        (2, rank, worker.id) for rank, worker in enumerate(idle)
    ]
    assert sorted(row["reason"] for row in run.members()) == ["preempted", "run_ended"]
