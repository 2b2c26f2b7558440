"""The seed alone determines a run's schedule and jobs."""

from __future__ import annotations

from chaos.clients.job_mix import plan
from chaos.schedule import Kind, schedule

KINDS = [Kind(f"fault {n}", n + 1.0, ("a", "b"), 0.5, 2.0) for n in range(10)]
NOT_HERE = Kind("not here", 100.0, (), 0.5, 2.0)
DIGEST = "0" * 64


def test_a_seed_gives_one_schedule_in_which_each_kind_comes() -> None:
    blows = schedule(7, 120, 4.0, [*KINDS, NOT_HERE])
    assert blows == schedule(7, 120, 4.0, [*KINDS, NOT_HERE])
    assert blows != schedule(8, 120, 4.0, [*KINDS, NOT_HERE])
    assert {blow.kind for blow in blows[: len(KINDS)]} == {kind.name for kind in KINDS}
    assert all(0 < blow.at_s < 120 and 0.5 <= blow.lasts_s <= 2 for blow in blows)
    assert [blow.at_s for blow in blows] == sorted(blow.at_s for blow in blows)
    assert 120 / 6 < len(blows) < 120 / 2


def test_a_regular_kind_hits_its_targets_in_turn_and_changes_no_other() -> None:
    regular = Kind("regular", 1.0, ("a", "b"), 0.0, 0.0, every_s=30.0)
    blows = schedule(7, 120, 4.0, [*KINDS, regular])
    known = [(blow.at_s, blow.target) for blow in blows if blow.kind == "regular"]
    assert known == [(15, "a"), (45, "b"), (75, "a"), (105, "b")]
    assert [blow for blow in blows if blow.kind != "regular"] == schedule(7, 120, 4.0, KINDS)


def test_a_seed_gives_the_same_jobs_under_the_same_keys() -> None:
    plans = [plan(7, n, containers=True, bundle=DIGEST, data="sets") for n in range(300)]
    assert plans == [plan(7, n, containers=True, bundle=DIGEST, data="sets") for n in range(300)]
    assert len({one.spec.idempotency_key for one in plans}) == 300
    assert {one.spec.labels["place"] for one in plans} == {"process", "container"}
    without = [plan(7, n, containers=False, bundle=DIGEST, data="sets") for n in range(300)]
    assert {one.spec.labels["place"] for one in without} == {"process"}
    assert {one.spec.nodes for one in without} == {1, 2, 3}
