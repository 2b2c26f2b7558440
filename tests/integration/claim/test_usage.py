"""Usage: what owners had counts for their share, and the statements' arithmetic is the model's."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.admin import OwnerSettings
from support.at_once import at_once
from support.queue.fair_share import Owner, Usage

if TYPE_CHECKING:
    from support.queue.rig import Rig

OWNERS = [f"o{n}" for n in range(6)]
GPUS = [{"name": "NVIDIA A100-SXM4-80GB", "uuid": f"GPU-{n}", "vram_mb": 81920} for n in range(64)]


def shares(rig: Rig) -> dict[str, float]:
    """Return the owners' shares."""
    told = rig.row("SELECT forge_shares(ARRAY(SELECT owner FROM owner_quota)) AS of_these")
    of_these: dict[str, float] = told["of_these"]
    return of_these


def levels(rig: Rig) -> dict[str, float]:
    """Return the owners' usage."""
    return {row["owner"]: row["level"] for row in rig.rows("SELECT * FROM owner_usage")}


def test_the_statements_count_as_the_model_does(rig: Rig) -> None:
    random = Random(7)  # noqa: S311  reproducible
    model, usage, now = {name: Owner() for name in OWNERS}, Usage(), 0.0
    for n, (name, owner) in enumerate(model.items()):
        owner.weight, owner.gpus = 1 + n % 3, (0, 1, 1, 2, 4, 8)[n]
        rig.admin.limit_owner(name, OwnerSettings(weight=owner.weight))
    worker = rig.worker(gpus=GPUS)
    held = []
    for round_ in range(40):
        for name, owner in model.items():
            if random.random() < 0.3:
                rig.submit(owner=name, gpus=owner.gpus)
        held += worker.claim(random.randint(0, 3))
        for grant in [grant for grant in held if random.random() < 0.2]:
            rig.finish(grant)
            held.remove(grant)
        rig.tick.count_usage()
        rows = rig.rows("SELECT owner FROM lane JOIN ready ON ready.lane_id = lane.id")
        waiting = {row["owner"] for row in rows}
        for name, owner in model.items():
            owner.held = sum(max(owner.gpus, 1) for grant in held if grant.owner == name)
            owner.waits = name in waiting
        usage.count(list(model.values()), now)
        expected = {name: usage.share(owner) for name, owner in model.items()}
        assert {**dict.fromkeys(OWNERS, 0.0), **shares(rig)} == pytest.approx(expected)
        step = 400.0 if round_ == 20 else random.uniform(2, 70)
        rig.clock.advance(step)
        now += step


def test_the_owner_who_had_less_goes_first_though_both_hold_the_same(rig: Rig) -> None:
    rig.submit_many(9, owner="ann")
    rig.submit_many(9, owner="bob")
    worker = rig.worker()
    first = worker.claim_one()
    rig.tick.run()
    rig.clock.advance(60)
    rig.tick.run()
    rig.finish(first)
    assert [worker.claim_one().owner for _ in range(3)] == ["bob", "ann", "bob"]


def test_without_running_jobs_a_count_writes_nothing(rig: Rig) -> None:
    rig.submit()
    rig.tick.run()
    assert levels(rig) == {}
    assert rig.row("SELECT counted_at FROM sweeper")["counted_at"] is None


def test_two_sweepers_at_once_count_once(rig: Rig) -> None:
    rig.submit()
    rig.worker().claim_one()
    rig.tick.count_usage()
    rig.clock.advance(10)
    at_once(rig.tick.count_usage, rig.tick.count_usage)
    assert levels(rig) == {"ann": 10.0}
