"""Which worker has a job that minds the price, or whether its machine is a spot one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.explain import explain
from forge_schema.model.explanation import Chance, Outlook
from forge_schema.model.states import Reason
from forge_schema.model.worker import Gpu, Speed
from forge_schema.wake import Hint, Sleepers

if TYPE_CHECKING:
    from support.queue.rig import Rig, Worker

SPOT: dict[str, Any] = {"labels": {"forge.spot": "yes"}}
A100 = Gpu("GPU-1", "NVIDIA A100-SXM4-80GB", 81_920)
H100 = Gpu("GPU-2", "NVIDIA H100 80GB HBM3", 81_559)
LEFT_S = 15


def asleep(rig: Rig, name: str, warm: list[int] | None = None, **machine: Any) -> Worker:  # noqa: ANN401  fields of Machine
    """Return a worker that sleeps."""
    gpus: list[Gpu] = machine.get("gpus", [])
    worker, sleepers = rig.worker(name, **machine), Sleepers()
    free = worker.free
    if gpus:
        free = type(free)(free.cpus, free.memory_mb, free.disk_mb, 1, gpus[0].name, gpus[0].vram_mb)
    sleepers.looks(worker.id, free, warm=warm or [])
    sleepers.looked(rig.database, worker.id, free, has_jobs=False)
    return worker


def woken(rig: Rig, **job: Any) -> list[str]:  # noqa: ANN401  fields of a job
    """Return the names of the workers in the order in which jobs wake them, one after another."""
    names = {row["id"]: row["name"] for row in rig.rows("SELECT id, name FROM worker")}
    order = []
    with rig.listening() as heard:
        for _ in names:
            rig.queue.cancel(rig.submit(**job))
            while payload := heard():
                order += [names[worker] for worker in Hint.read(payload[0]).workers]
    return order


def priced(rig: Rig, **prices: float | None) -> None:
    for name, price in prices.items():
        asleep(rig, name, price_per_hour=price)


def test_the_cheaper_worker_is_woken_first_and_before_it_one_that_costs_nothing(rig: Rig) -> None:
    priced(rig, dear=30.0, cheap=2.5, free=0, own=None)
    order = woken(rig)
    assert ({*order[:2]}, order[2:]) == ({"free", "own"}, ["cheap", "dear"])


def test_a_price_is_divided_by_the_speed_unless_that_is_unknown_of_one(rig: Rig) -> None:
    fast, slow = (Speed("torch", cpu={"fp32": rate}) for rate in (9_000.0, 500.0))
    asleep(rig, "fast", price_per_hour=4, speed=fast)
    asleep(rig, "slow", price_per_hour=1, speed=slow)
    assert woken(rig) == ["fast", "slow"]
    priced(rig, unknown=2.0)
    for name, speed, price in (("fast", fast, 4), ("slow", slow, 1)):
        asleep(rig, name, speed=speed, price_per_hour=price)
    assert woken(rig) == ["slow", "unknown", "fast"]


def test_much_the_same_price_weighs_less_than_what_must_be_fetched(rig: Rig) -> None:
    rig.submit(image="a")
    grant = rig.worker("first").claim_one()
    parts = [part for part in grant.parts if part is not None]
    asleep(rig, "cold", price_per_hour=2.0)
    asleep(rig, "warm", parts, price_per_hour=2.05)
    asleep(rig, "far", parts, price_per_hour=4.0)
    assert woken(rig, image="a") == ["warm", "cold", "far"]


def test_models_come_in_the_order_of_wish_and_of_one_model_the_cheapest(rig: Rig) -> None:
    for name, gpu, price in (("a1", A100, 1.0), ("a2", A100, 2.0), ("h8", H100, 8.0)):
        asleep(rig, name, gpus=[gpu], accelerator="cuda", price_per_hour=price)
    assert woken(rig, gpus=1, gpu_model="h100*|a100*") == ["h8", "a1", "a2"]


def test_a_spot_machine_is_woken_first_for_a_job_that_prefers_one(rig: Rig) -> None:
    asleep(rig, "own")
    asleep(rig, "spot", price_per_hour=3.0, **SPOT)
    assert woken(rig, spot="prefer") == ["spot", "own"]


def test_a_job_that_prefers_spot_is_left_to_such_a_machine_for_a_while(rig: Rig) -> None:
    other, spot = rig.worker("other"), rig.worker("spot", cpus=1, **SPOT)
    job, plain = rig.submit(spot="prefer"), rig.submit()
    assert [grant.job_id for grant in other.claim(2)] == [plain]
    chances = {one.worker: one for one in explain(rig.database, job).workers}
    assert chances["other"].text == "leaves it to spot machines for another 15 s"
    assert chances["spot"].chance is Chance.STARTS
    rig.submit(cpus=1, priority=1, spot="only")
    assert len(spot.claim()) == 1
    waits = explain(rig.database, job)
    assert waits.outlook is Outlook.BUSY
    assert waits.text.endswith("others than spot machines may take it in some seconds")
    rig.clock.advance(LEFT_S)
    assert [grant.job_id for grant in other.claim()] == [job]


@pytest.mark.parametrize("spot", [None, "unfit", "offline"])
def test_where_no_spot_machine_could_have_it_nothing_waits(rig: Rig, spot: str | None) -> None:
    if spot:
        worker = rig.worker("spot", **{"cpus": 1, **SPOT})
        if spot == "offline":
            rig.rows("UPDATE worker SET status = 'offline' WHERE id = %s", worker.id)
    job = rig.submit(spot="prefer", cpus=2 if spot == "unfit" else 1)
    assert rig.worker("other").claim_one().job_id == job


@pytest.mark.parametrize(
    ("wanted", "why", "remedy"),
    [
        ({"spot": "never"}, "no worker that fits is not spot", "drop --spot"),
        (
            {"max_price": 2},
            "all that fit cost more than 2 an hour: the cheapest costs 2.5",
            "request --max-price 2.5 instead of 2",
        ),
    ],
)
def test_explain_says_what_such_a_job_waits_for_and_what_to_do(
    rig: Rig, wanted: dict[str, Any], why: str, remedy: str
) -> None:
    rig.worker("small", cpus=1)
    rig.worker("big", price_per_hour=2.5, **SPOT)
    explained = explain(rig.database, rig.submit(cpus=2, **wanted))
    assert explained.outlook is Outlook.UNFIT
    assert explained.text == f"{why} (2 checked)"
    assert f"{remedy}: then big can run it" in [one.text for one in explained.remedies]


def test_a_job_shows_what_it_has_cost_so_far_and_in_the_end(rig: Rig) -> None:
    worker = rig.worker(price_per_hour=3.6)
    job = rig.submit(max_failures=1, backoff_s=0)
    assert rig.jobs.job(job)["cost"] is None
    first = worker.claim_one()
    rig.clock.advance(1000)
    assert rig.jobs.job(job)["cost"] == pytest.approx(1)
    rig.finish(first, Reason.EXIT_CODE)
    second = worker.claim_one()
    rig.clock.advance(500)
    assert rig.jobs.job(job)["cost"] == pytest.approx(1.5)
    rig.finish(second)
    rig.clock.advance(500)
    assert rig.jobs.job(job)["cost"] == pytest.approx(1.5)


def test_a_label_in_place_of_a_price_fits_nobody_and_harms_nobody(rig: Rig) -> None:
    worker = rig.worker(price_per_hour=1)
    hostile = rig.submit(labels={"forge.max_price": "9 or more"}, priority=1)
    assert explain(rig.database, hostile).outlook is Outlook.UNFIT
    job = rig.submit()
    assert worker.claim_one().job_id == job
