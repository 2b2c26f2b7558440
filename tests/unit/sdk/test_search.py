"""What a search is asked for: ranges, samplers and pruners by name, and what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import optuna
import pytest
from forge_client.errors import ClientError
from forge_client.project.matrix import from_options
from forge_client.search.plan import Plan, Range, choices, ranges
from forge_client.search.samplers import pruner, sampler
from forge_client.search.studies import Search, opened
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState

if TYPE_CHECKING:
    from pathlib import Path


def plan(**changes: Any) -> Plan:  # noqa: ANN401  fields of all types
    spec = {"name": "job", "command": ["train", "{x}"], "resources": {}}
    given = {"sweep": "s", "owner": "ann", "spec": spec, "metric": "loss", "trials": 9}
    return Plan(**{**given, "ranges": ranges(["x=1..2"]), **changes})


def test_a_range_is_whole_if_all_its_numbers_are() -> None:
    found = ranges(["lr=1e-4..1e-1,log", "n=1..8", "k=2..16,step=2", "f=0..1.0"])
    assert found["lr"] == Range(low=1e-4, high=0.1, log=True)
    assert [name for name, span in found.items() if span.whole] == ["n", "k"]
    # Whoever names a step means whole numbers; `dropout=0..1` may be a slip.
    assert {name: span.note for name, span in found.items() if span.note} == {
        "n": "whole numbers 1 to 8; write 1.0..8.0 for all between"
    }


@pytest.mark.parametrize(
    "text",
    ["x", "x=1", "x=2..1", "x=1..b", "x=0..1,log", "x=1..2,log,step=1", "x=1..2,odd",
     "x=1..2,step=-1", "trial=1..2", "1=1..2", "x=1..2,step=two"],
)  # fmt: skip
def test_a_malformed_range_is_refused_with_its_form(text: str) -> None:
    with pytest.raises(ClientError, match="--range") as refused:
        ranges([text])
    assert "NAME=LOW..HIGH" in refused.value.hint


def test_what_is_wrong_with_a_range_is_named() -> None:
    with pytest.raises(ClientError, match="a range has no 'foo', only log and step"):
        ranges(["x=1..2,log,foo"])


def test_a_storage_that_cannot_be_opened_has_no_jobs_that_continue(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="does not answer") as refused:
        opened(f"sqlite:///{tmp_path / 'none' / 'studies.db'}")
    assert "no job was submitted" in refused.value.hint


def test_the_job_of_a_trial_has_its_point_and_always_the_same_key() -> None:
    made = plan().job(3, {"x": 1.5})
    assert made["command"] == ["train", "1.5"]
    assert made["parameters"] == {"trial": 3, "x": 1.5}
    assert made == plan().job(3, {"x": 1.5})
    assert made["name"].endswith(" trial=3")
    assert made["idempotency_key"] != plan().job(4, {"x": 1.5})["idempotency_key"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ranges": {}}, "nothing to search"),
        ({"trials": None}, "nothing would end"),
        ({"choices": {"x": [1]}}, "in --matrix and in --range"),
        ({"ranges": ranges(["y=1..2"])}, r"\{x\}, which is no parameter"),
        ({"gpu_hours": 1}, "use no GPU-hours"),
        ({"sampler": "grid"}, "a grid has no ranges"),
    ],
)
def test_a_plan_that_is_no_search_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ClientError, match=said):
        plan(**changes).checked()


def test_a_grid_cannot_be_extended_beyond_its_points() -> None:
    grid = plan(ranges={}, choices={"x": [1, 2, 3]}, sampler="grid", trials=2).checked()
    assert grid.extended({"trials": 3}).trials == 3
    with pytest.raises(ClientError, match="this grid has 3 points, and a trial for each"):
        grid.extended({"trials": 4})


def test_the_name_trial_is_reserved() -> None:
    with pytest.raises(ClientError, match="'trial' cannot be a parameter"):
        choices(from_options(["trial=1,2"]))


def test_samplers_and_pruners_are_optunas_by_name_or_the_users_own() -> None:
    assert isinstance(sampler(plan(sampler="random"), 0), optuna.samplers.RandomSampler)
    assert isinstance(
        sampler(plan(sampler="optuna.samplers:QMCSampler,scramble=true", seed=1), 0),
        optuna.samplers.QMCSampler,
    )
    assert isinstance(pruner(plan(pruner="median,n_startup_trials=2")), optuna.pruners.MedianPruner)
    assert isinstance(pruner(plan(pruner="halving")), optuna.pruners.SuccessiveHalvingPruner)
    assert isinstance(pruner(plan()), optuna.pruners.NopPruner)


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("sampler", "magic", "no such sampler"),
        ("sampler", "no.such:Module", "No module named"),
        ("sampler", "tpe,odd=1", "odd"),
        ("sampler", "random,seed=3", "an option of its own"),
        ("sampler", "pathlib:Path", "is no BaseSampler"),
        ("pruner", "magic", "no such pruner"),
        ("pruner", "percentile", "percentile"),
    ],
)
def test_a_wrong_name_or_argument_is_refused(option: str, text: str, said: str) -> None:
    made_by = {"sampler": lambda plan: sampler(plan, 0), "pruner": pruner}
    with pytest.raises(ClientError, match=said) as refused:
        made_by[option](plan(**{option: text}))
    assert refused.value.hint


BETWEEN = {"ranges": ranges(["x=0.0..1.0"])}


def points(storage: InMemoryStorage, count: int, **changes: Any) -> list[Any]:  # noqa: ANN401  as above
    """Return the points of trials whose search goes on in a new process before each of them."""
    found = []
    for _ in range(count):
        search = Search.begun(storage, plan(**{**BETWEEN, **changes}))
        trial = search.ask()
        found.append(search.point(trial)["x"])
        search.tell(trial, TrialState.COMPLETE, 1.0)
    return found


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_searches_with_neighbouring_seeds_have_no_points_in_common(sampler: str) -> None:
    found = [points(InMemoryStorage(), 5, sampler=sampler, seed=seed) for seed in (7, 8, 7)]
    assert not {*found[0]} & {*found[1]}
    assert len({*found[0]}) == 5
    assert found[0] == found[2]


def test_a_grid_with_a_seed_has_each_point_once() -> None:
    values = [*range(8)]
    changes = {"sampler": "grid", "seed": 3, "ranges": {}, "choices": {"x": values}}
    assert sorted(points(InMemoryStorage(), 8, **changes)) == values


def test_the_seed_of_a_trial_is_of_the_number_that_it_got(monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = points(InMemoryStorage(), 2, sampler="random", seed=7)
    storage = InMemoryStorage()
    search = Search.begun(storage, plan(sampler="random", seed=7, **BETWEEN))
    create = storage.create_new_trial

    def after_another(study: int, template: None = None) -> int:
        create(study)
        return create(study, template)

    monkeypatch.setattr(storage, "create_new_trial", after_another)
    assert search.point(search.ask()) == {"x": undisturbed[1]}
