"""Who is woken first, and which job a worker takes first: by what need not be fetched."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from forge_schema.model.states import Reason
from forge_schema.model.worker import Gpu, Speed
from forge_schema.wake import Hint, Sleepers
from support.queue.rig import spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.queue.rig import Rig, Worker

ONE, OTHER = "ab" * 32, "cd" * 32
PROJECT = {"bundle_digest": ONE, "requirements": "requirements.txt"}


def parts_of(rig: Rig, job_id: int) -> list[int | None]:
    """Return the parts of a job that is ready."""
    parts: list[int | None] = rig.row("SELECT parts FROM ready WHERE job_id = %s", job_id)["parts"]
    return parts


def parts(rig: Rig, **job: Any) -> list[int]:  # noqa: ANN401  fields of a job
    """Return the parts that such a job has."""
    job_id = rig.submit(**job)
    found = parts_of(rig, job_id)
    rig.queue.cancel(job_id)
    return [part for part in found or [] if part is not None]


def asleep(
    rig: Rig,
    name: str,
    warm: list[int] | None = None,
    count: int = 8,
    **machine: Any,  # noqa: ANN401  fields of Machine
) -> int:
    """Return a worker that sleeps, with room for `count` jobs."""
    worker, sleepers = rig.worker(name, **machine), Sleepers()
    sleepers.looks(worker.id, worker.free, count=count, warm=warm or [])
    sleepers.looked(rig.database, worker.id, worker.free, has_jobs=False)
    return worker.id


def woken(rig: Rig, act: Callable[[], object]) -> set[int]:
    """Return the workers that an act wakes."""
    named: set[int] = set()
    with rig.listening() as heard:
        act()
        while payload := heard():
            named |= Hint.read(payload[0]).workers
    return named


def took(worker: Worker, warm: list[int], count: int = 1) -> list[int]:
    """Have a worker claim jobs one by one; return them in order."""
    claim = partial(worker.rig.queue.finish_and_claim, [], worker.lanes, worker.free, warm=warm)
    return [grant.fence.job_id for _ in range(count) for grant in claim()[1]]


def test_a_job_has_an_image_an_environment_and_a_bundle_as_parts(rig: Rig) -> None:
    jobs: list[dict[str, Any]] = [
        {},
        {"image": "a"},
        {"image_tar": ONE},
        {"bundle_digest": ONE},
        {"bundle_digest": ONE, "image": "a"},
        {"bundle_digest": ONE, "dockerfile": "Dockerfile"},
        {"bundle_digest": OTHER, "dockerfile": "Dockerfile"},
        PROJECT,
        {**PROJECT, "image": "a"},
        {**PROJECT, "owner": "bob"},
    ]
    found = [parts_of(rig, rig.submit(**job)) or [None] * 3 for job in jobs]
    images, environments, bundles = zip(*found, strict=True)
    assert [images.index(one) for one in images] == [0, 1, 2, 0, 1, 5, 6, 0, 1, 0]
    assert [environments.index(one) for one in environments] == [0] * 7 + [7, 8, 9]
    assert [bundles.index(one) for one in bundles] == [0, 0, 0, 3, 3, 3, 6, 3, 3, 3]


def again(rig: Rig, job: int, how: str) -> None:
    """Make a job ready in one of the ways other than a submit."""
    if how == "promoted":
        rig.clock.advance(11)
        rig.tick.run()
        return
    (first,) = rig.worker("taker").claim()
    if how == "held":
        rig.finish(first)
    elif how == "released":
        rig.queue.release(first.fence)
    elif how == "expired":
        rig.expire()
        rig.tick.run()
    else:
        rig.finish(first, Reason.BUNDLE_CORRUPT)
        rig.queue.retry(job)


@pytest.mark.parametrize("how", ["promoted", "held", "released", "expired", "retried"])
def test_a_job_that_becomes_ready_again_has_its_parts_and_wakes_who_has_them(
    rig: Rig, how: str
) -> None:
    known = parts(rig, **PROJECT, image="a")
    before = {"after_ok": [rig.submit()]} if how == "held" else {}
    delay = {"delay_s": 10} if how == "promoted" else {}
    job = rig.submit(**PROJECT, image="a", **before, **delay)
    asleep(rig, "cold")
    warm = asleep(rig, "warm", known)
    assert woken(rig, partial(again, rig, job, how)) == {warm}
    assert parts_of(rig, job) == known


def test_the_worker_that_need_not_fetch_is_woken_and_the_image_counts_most(rig: Rig) -> None:
    image, environment, bundle = parts(rig, **PROJECT, image="a")
    having = [[], [bundle], [environment, bundle], [image], [image, bundle], [7, image, bundle, 9]]
    asked = {"image": "a", **PROJECT}
    ids = [asleep(rig, f"w{n}", warm) for n, warm in enumerate(having)]
    order = [woken(rig, partial(rig.submit, **asked)) for _ in ids]
    assert order[:2] in ([{ids[4]}, {ids[5]}], [{ids[5]}, {ids[4]}])
    assert order[2:] == [{ids[3]}, {ids[2]}, {ids[1]}, {ids[0]}]


def test_jobs_of_one_batch_wake_each_the_worker_that_has_its_bundle(rig: Rig) -> None:
    for n in range(4):
        asleep(rig, f"cold{n}")
    warm = {asleep(rig, one[:2], parts(rig, bundle_digest=one)) for one in (ONE, OTHER)}
    batch = [spec(bundle_digest=one) for one in (ONE, OTHER)]
    assert woken(rig, lambda: rig.queue.submit(batch, any_owner=True)) == warm


def test_one_that_has_the_bundle_but_no_room_is_passed_over(rig: Rig) -> None:
    known = parts(rig, bundle_digest=ONE)
    asleep(rig, "small", known, cpus=0.5)
    able = asleep(rig, "able")
    assert woken(rig, partial(rig.submit, bundle_digest=ONE)) == {able}


@pytest.mark.parametrize(
    ("jobs", "takes", "names"),
    [
        (1, 1, {"remote"}),
        (4, 8, {"remote"}),
        # It has no room for all of them.
        (4, 3, {"remote", "local"}),
    ],
)
def test_a_local_worker_is_woken_for_what_remote_ones_have_no_room_for(
    rig: Rig, jobs: int, takes: int, names: set[str]
) -> None:
    known = parts(rig, bundle_digest=ONE)
    ids = {
        "local": asleep(rig, "local", known, local=True),
        "remote": asleep(rig, "remote", count=takes),
    }
    expected = {ids[name] for name in names}
    assert woken(rig, partial(rig.submit_many, jobs, bundle_digest=ONE)) == expected


def test_a_job_of_a_target_wakes_only_workers_of_it(rig: Rig) -> None:
    local, remote = asleep(rig, "local", local=True), asleep(rig, "remote")
    assert woken(rig, partial(rig.submit, target="local")) == {local}
    assert woken(rig, partial(rig.submit, target="worker")) == {remote}


def test_a_local_worker_is_woken_if_no_other_sleeps(rig: Rig) -> None:
    local = asleep(rig, "local", local=True)
    assert woken(rig, rig.submit) == {local}


def cpu(gflops: float, cpus: int = 1, method: str = "numpy") -> Speed:
    return Speed(method, cpus=cpus, cpu={"fp32": gflops})


def awakened(rig: Rig, count: int, **job: Any) -> list[set[int]]:  # noqa: ANN401  fields of a job
    """Return the workers that jobs wake, one after the other."""
    return [woken(rig, partial(rig.submit, **job)) for _ in range(count)]


def test_of_workers_that_fetch_the_same_the_fastest_is_woken(rig: Rig) -> None:
    speeds = {
        "slow": cpu(50), "fast": cpu(80), "unmeasured": None, "wide": cpu(120, cpus=2),
        "older": Speed("numpy", cpu={"fp64": 10}),
    }  # fmt: skip
    ids = {name: asleep(rig, name, speed=speed) for name, speed in speeds.items()}
    order = ["fast", "wide", "slow", "older", "unmeasured"]
    assert awakened(rig, 5) == [{ids[name]} for name in order]


def test_what_need_not_be_fetched_goes_before_speed(rig: Rig) -> None:
    known = parts(rig, bundle_digest=ONE)
    warm = asleep(rig, "warm", known, speed=cpu(1))
    fast = asleep(rig, "fast", speed=cpu(1e9))
    assert awakened(rig, 2, bundle_digest=ONE) == [{warm}, {fast}]


def test_a_job_with_gpus_counts_the_speed_of_gpus(rig: Rig) -> None:
    gpu = Gpu(uuid="GPU-a", name="NVIDIA A100", vram_mb=80_000)
    speeds = {
        "gpu": Speed("torch", cpu={"fp32": 10}, cuda={"fp32": 2e4, "bf16": 3e5}),
        "cpu": Speed("torch", cpu={"fp32": 900}, cuda={"fp32": 4e4, "bf16": 1e5}),
        "amd": Speed("torch", cpu={"fp32": 20}, rocm={"fp32": 1e4}),
    }
    ids = {name: asleep(rig, name, gpus=[gpu], speed=speed) for name, speed in speeds.items()}
    assert awakened(rig, 3, gpus=1) == [{ids["gpu"]}, {ids["cpu"]}, {ids["amd"]}]


def test_results_of_different_methods_are_not_compared(rig: Rig) -> None:
    # Python alone is slower than any library: its numbers rank only among themselves.
    speeds = {
        "python": cpu(1e6, method="python"), "torch": cpu(1, method="torch"), "numpy": cpu(9),
        "newer": cpu(1e6, method="jax"),
    }  # fmt: skip
    ids = {name: asleep(rig, name, speed=speed) for name, speed in speeds.items()}
    order = ["torch", "numpy", "python", "newer"]
    assert awakened(rig, 4) == [{ids[name]} for name in order]


def test_a_speed_is_registered_replaced_and_forgotten(rig: Rig) -> None:
    made = rig.worker("w", speed=cpu(80, cpus=4))
    (worker,) = rig.registry.workers()
    assert worker["speed"] == {"method": "numpy", "cpus": 4, "cpu": {"fp32": 80.0}, "version": 1}
    rig.registry.register_known(made.id, replace(made.machine, speed=cpu(90)))
    assert rig.registry.worker(made.id)["speed"]["cpu"] == {"fp32": 90.0}
    # Its hardware is another now, or its version older.
    rig.registry.register("w", replace(made.machine, speed=None))
    assert rig.registry.worker(made.id)["speed"] is None


def mixed(rig: Rig) -> tuple[list[int], list[int]]:
    """Submit jobs of two bundles by turns; return those of each."""
    jobs = [rig.submit(bundle_digest=one) for _ in range(3) for one in (OTHER, ONE)]
    return jobs[0::2], jobs[1::2]


def test_a_worker_takes_the_jobs_first_whose_bundle_it_has(rig: Rig) -> None:
    known = parts(rig, bundle_digest=ONE)
    cold, warm = mixed(rig)
    assert took(rig.worker(), known, count=6) == [*warm, *cold]


def test_a_job_that_needs_nothing_is_as_good_as_one_whose_bundle_is_there(rig: Rig) -> None:
    known = parts(rig, bundle_digest=ONE)
    cold, plain, warm = rig.submit(bundle_digest=OTHER), rig.submit(), rig.submit(bundle_digest=ONE)
    assert took(rig.worker(), known, count=3) == [plain, warm, cold]


@pytest.mark.parametrize("known", [True, False])
def test_a_job_is_passed_by_for_a_minute_at_most(rig: Rig, *, known: bool) -> None:
    warm = parts(rig, bundle_digest=ONE) if known else []
    jobs = [job for both in zip(*mixed(rig), strict=True) for job in both]
    rig.clock.advance(61)
    assert took(rig.worker(), warm, count=3) == jobs[:3]


def test_a_job_that_came_back_is_not_passed_by(rig: Rig) -> None:
    known = parts(rig, bundle_digest=ONE)
    job = rig.submit(bundle_digest=OTHER)
    rig.queue.release(rig.worker("taker").claim_one().fence)
    warm = rig.submit(bundle_digest=ONE)
    assert took(rig.worker(), known, count=2) == [job, warm]


def test_priority_and_fair_share_go_before_preference(rig: Rig) -> None:
    known = parts(rig, bundle_digest=ONE, owner="bob")
    urgent = rig.submit(bundle_digest=OTHER, priority=1, owner="bob")
    of = {
        owner: [rig.submit(bundle_digest=one, owner=owner) for one in (OTHER, ONE)]
        for owner in ("ann", "bob")
    }
    worker = rig.worker()
    assert took(worker, known) == [urgent]
    # Bob has one job now, so Ann is next; if their shares are equal, the older job goes first. Of
    # each owner's jobs, the first is the one whose bundle is there.
    assert took(worker, known, count=4) == [*reversed(of["ann"]), *reversed(of["bob"])]


def test_a_claim_of_many_takes_what_is_there_first(rig: Rig) -> None:
    known = parts(rig, bundle_digest=ONE)
    cold, warm = mixed(rig)
    worker = rig.worker()
    _, grants = rig.queue.finish_and_claim([], worker.lanes, worker.free, count=4, warm=known)
    assert sorted(grant.fence.job_id for grant in grants) == sorted([*warm, cold[0]])


def test_a_grant_names_its_parts_also_if_it_is_handed_out_again(rig: Rig) -> None:
    known = parts(rig, **PROJECT, image="a")
    rig.submit(**PROJECT, image="a")
    worker, nonce = rig.worker(), uuid4()
    claim = partial(rig.queue.finish_and_claim, [], worker.lanes, worker.free, nonce=nonce)
    assert [grant.parts for grant in claim()[1]] == [known]
    assert [grant.parts for grant in claim(repeated=True)[1]] == [known]


def test_what_has_the_inputs_is_preferred_to_what_has_all_else(rig: Rig) -> None:
    labels = {"forge.input.s3": "yes", "forge.input.folder:x": "yes"}
    sources = {"b": "s3://bucket/b", "a": "s3://bucket/a", "x": "folder:x"}
    job: dict[str, Any] = {**PROJECT, "image": "a", "inputs": sources}
    image, environment, bundle, *inputs = parts(rig, **job)
    # Those of a machine's own folders are not fetched, and another owner's are others.
    assert len(inputs) == 2
    assert not {*inputs} & {*parts(rig, **job, owner="bob")}
    assert inputs == parts(rig, inputs=sources)
    having = asleep(rig, "having", inputs, labels=labels)
    asleep(rig, "lacking", [image, environment, bundle, inputs[0]], labels=labels)
    asleep(rig, "older", [image, environment, bundle])
    assert woken(rig, partial(rig.submit, **job)) == {having}

    lacking, had = (rig.submit(inputs={"x": sources[name]}) for name in "ba")
    worker = rig.worker("claims", labels=labels)
    order = took(worker, parts(rig, inputs={"a": sources["a"]}), 3)
    assert order.index(had) < order.index(lacking)
