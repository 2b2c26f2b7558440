"""Searches whose driver dies at any call, on a queue whose jobs are played."""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, Any

import optuna
import pytest
from forge_client.errors import ClientError, ExitCode
from forge_client.search.driver import Driver, best
from forge_client.search.lease import DRIVER, LAPSES_AFTER_S, RENEWED_AFTER_S, StudyLease
from forge_client.search.plan import Plan, Range
from forge_client.search.studies import Search, beside_the_queue, closing, opened
from forge_schema.model.attempt_records import MetricRecord
from forge_schema.model.lease import Usage
from forge_schema.model.states import Phase, Reason, Standing
from forge_schema.model.worker import Gpu
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from support.client.reaching import reaching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from forge_client.backend import Backend
    from forge_schema.model.lease import Grant
    from forge_schema.service.findings import Findings
    from optuna.storages import BaseStorage
    from support.queue.rig import Rig

SPEC = {"owner": "ann", "name": "job", "command": ["train", "{x}"], "resources": {"cpus": 1}}
TRIALS, PARALLEL, DEATHS = 6, 3, 12
# Where the process may die: in calls that change the queue, or the study.
ACTS = ("submit", "cancel")
STORES = ("_create_new_trial", "set_trial_user_attr", "set_trial_state_values")


class DiesError(Exception):
    """The driver's process ends here."""


@dataclass
class Mortal:
    """A backend, and a storage, in whose calls the process may die, before or after they act."""

    backend: Backend
    dice: random.Random
    deaths: int = DEATHS

    @property
    def findings(self) -> Findings:
        return self.backend.findings

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  any of the backend's
        found = getattr(self.backend, name)
        return self.deadly(found) if name in ACTS else found

    def storing(self, storage: BaseStorage) -> BaseStorage:
        for name in STORES:
            setattr(storage, name, self.deadly(getattr(storage, name)))
        return storage

    def deadly(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **given: Any) -> Any:  # noqa: ANN401  as above
            self.die()
            answer = function(*args, **given)
            self.die()
            return answer

        return call

    def die(self) -> None:
        if self.deaths and self.dice.random() < 0.2:
            self.deaths -= 1
            raise DiesError


@dataclass
class Jobs:
    """Plays a worker: jobs report (x - 3)² at four steps, those of an x above 6 until stopped."""

    rig: Rig
    gpus: int = 0
    price: float | None = 0.01
    running: list[Grant] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        gpus = [Gpu(f"GPU-{n}", "A100", 40_000) for n in range(self.gpus)]
        self.worker = self.rig.worker(gpus=gpus)

    def work(self, seconds: float = 0) -> None:
        for grant in self.worker.claim(100):
            self.begun.append(grant.job_id)
            self.running.append(grant)
            self.report(grant)
        assert len(self.running) <= PARALLEL
        self.rig.clock.advance(seconds)
        for grant in list(self.running):
            stopped = self.worker.renew(grant).standings[grant.fence] == Standing.CANCELLED
            if stopped or loss(grant) <= 9:
                reason = Reason.CANCELLED if stopped else Reason.SUCCEEDED
                cost = None if self.price is None else seconds * self.price
                used = Usage(gpu_seconds=seconds, cost=cost)
                self.rig.finish(grant, reason, usage=used)
                self.running.remove(grant)

    def report(self, grant: Grant) -> None:
        self.rig.queue.report(grant.fence, Phase.RUNNING, devices=["GPU-0"] * self.gpus)
        lines = [MetricRecord(n, n, {"loss": loss(grant), "step": n}) for n in range(4)]
        assert self.rig.records.add_metrics(grant.fence, lines)


def loss(grant: Grant) -> float:
    return float((grant.spec["parameters"]["x"] - 3) ** 2)


def plan(**changes: Any) -> Plan:  # noqa: ANN401  fields of all types
    given: dict[str, Any] = {
        "sweep": "s", "owner": "ann", "spec": SPEC, "metric": "loss", "parallel": PARALLEL,
        "trials": TRIALS, "sampler": "random", "seed": 7,
        "ranges": {"x": Range(low=0.0, high=10.0)}, "pruner": "threshold,upper=9",
    }  # fmt: skip
    return Plan(**{**given, **changes}).checked()


def ended(search: Search) -> list[tuple[dict[str, Any], str, float | None]]:
    return [(trial.params, trial.state.name, trial.value) for trial in search.trials()]


def driven(backend: Backend, search: Search, jobs: Jobs) -> Iterator[str]:
    said: list[str] = []
    driver = Driver(backend, search, said.append)
    for _ in range(50):
        if driver.step():
            break
        jobs.work()
        yield from said
        said.clear()
    yield from said


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'studies.db'}"


@pytest.fixture
def storage(url: str) -> Iterator[BaseStorage]:
    with closing(opened(url)) as made:
        yield made


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sampler": "grid", "ranges": {}, "choices": {"x": [8, 1, 3, 5, 7, 2]}, "trials": None},
    ],
    ids=["random", "grid"],
)
def test_a_driver_that_dies_at_any_call_loses_no_trial_and_repeats_none(
    rig: Rig, tmp_path: Path, storage: BaseStorage, url: str, changes: dict[str, Any]
) -> None:
    with ExitStack() as open_, reaching("direct", rig, (tmp_path / "store").as_uri()) as client:
        undisturbed = Search.begun(storage, plan(sweep="alone", **changes))
        list(driven(client.backend, undisturbed, Jobs(rig)))
        assert {state for _, state, _ in ended(undisturbed)} == {"COMPLETE", "PRUNED"}

        backend = Mortal(client.backend, random.Random(1))  # noqa: S311  a seed is wanted
        jobs, over = Jobs(rig), False
        Search.begun(storage, plan(**changes))
        while not over:
            kept = open_.enter_context(closing(opened(url)))
            search = Search.known(backend.storing(kept), "s")
            try:
                list(driven(backend, search, jobs))  # type: ignore[arg-type]
                over = True
            except DiesError:
                jobs.work()
        assert backend.deaths == 0
        assert ended(search) == ended(undisturbed)
        assert len({params["x"] for params, *_ in ended(search)}) == TRIALS
        assert len(jobs.begun) == len(set(jobs.begun)) == len(search.trials())
        assert best(search) | {"job_id": 0} == best(undisturbed) | {"job_id": 0}  # type: ignore[operator]


@pytest.mark.parametrize("way", ["direct", "http"])
def test_a_pruned_trial_is_a_cancelled_job_that_says_why(
    way: str, rig: Rig, tmp_path: Path, storage: BaseStorage
) -> None:
    with reaching(way, rig, (tmp_path / "store").as_uri()) as client:
        search = Search.begun(storage, plan(choices={"x": [9, 4]}, ranges={}, sampler="grid"))
        said = list(driven(client.backend, search, Jobs(rig)))
        first, second = search.trials()
        assert (first.state, first.value) == (TrialState.PRUNED, 36)
        assert (second.state, second.value) == (TrialState.COMPLETE, 1)
        assert second.intermediate_values == dict.fromkeys(range(4), 1)
        job = client.job(first.user_attrs["forge_job"])
        assert job.state == "cancelled"
        asked = next(event for event in job.events() if event.action == "asked to cancel")
        assert asked.detail == {"reason": "pruned at step 0: loss 36"}
        assert "trial 0: pruned at step 0: loss 36" in said
        points = client.sweep("s").points()
        assert [one.detail for one in points] == ["pruned at step 0: loss 36", None]


class Diverging(Jobs):
    """Jobs that end without a finite loss, each in another way."""

    def report(self, grant: Grant) -> None:
        x = grant.spec["parameters"]["x"]
        self.rig.queue.report(grant.fence, Phase.RUNNING)
        lines: dict[int, dict[str, Any]] = {1: {"loss": "NaN"}, 2: {"loss": 1}, 3: {"lr": 1}}
        assert self.rig.records.add_metrics(grant.fence, [MetricRecord(0, 0, lines[x])])
        if x == 2:
            assert self.rig.records.add_result(grant.fence, {"loss": None})


def test_a_trial_whose_loss_is_not_finite_has_failed_and_says_so(
    rig: Rig, tmp_path: Path, storage: BaseStorage
) -> None:
    with reaching("direct", rig, (tmp_path / "store").as_uri()) as client:
        grid = plan(choices={"x": [1, 2, 3]}, ranges={}, sampler="grid", trials=None, pruner=None)
        search = Search.begun(storage, grid)
        said = list(driven(client.backend, search, Diverging(rig)))
    assert {trial.state for trial in search.trials()} == {TrialState.FAIL}
    xs = {f"trial {trial.number}": trial.params["x"] for trial in search.trials()}
    assert {xs[line.partition(":")[0]]: line.partition(": ")[2] for line in said[3:]} == {
        1: "its job ended with loss NaN",
        2: "its job's result has null as loss, which NaN becomes",
        3: "its job reported no loss",
    }


def test_a_search_that_is_over_goes_on_with_other_limits_only_if_it_is_resumed(
    rig: Rig, tmp_path: Path, storage: BaseStorage
) -> None:
    with reaching("direct", rig, (tmp_path / "store").as_uri()) as client:
        jobs = Jobs(rig)
        list(driven(client.backend, Search.begun(storage, plan(trials=2, parallel=1)), jobs))
        commit = {**SPEC, "git": {"revision": "a" * 40}}
        again = Search.begun(storage, plan(trials=2, parallel=1, spec=commit))
        assert list(driven(client.backend, again, jobs)) == []
        with pytest.raises(ClientError, match="other options: --metric and --trials") as refused:
            Search.begun(storage, plan(trials=3, parallel=1, metric="acc"))
        assert refused.value.exit_code == ExitCode.CONFLICT
        assert "sweep resume s`" in refused.value.hint

        longer = Search.known(storage, "s")
        # One of its trials has no job yet, as after a kill.
        longer.ask()
        longer.extend({"trials": 5, "parallel": 3})
        list(driven(client.backend, Search.known(storage, "s"), jobs))
    assert len(longer.trials()) == len(jobs.begun) == 5
    assert rig.row("SELECT parallel FROM sweep_cap") == {"parallel": 3}
    # The job of a trial does not depend on it: it may have been submitted before.
    assert {row["spec"]["parallel"] for row in rig.rows("SELECT spec FROM job")} == {1}


class Telling(Jobs):
    """Jobs that report a loss in their metrics, the best of which is not the last, and a result."""

    def report(self, grant: Grant) -> None:
        self.rig.queue.report(grant.fence, Phase.RUNNING)
        lines = [MetricRecord(n, n, {"loss": loss, "step": n}) for n, loss in enumerate((2, 1, 3))]
        assert self.rig.records.add_metrics(grant.fence, lines)
        assert self.rig.records.add_result(grant.fence, {"eval": {"loss": 4}})


@pytest.mark.parametrize(
    ("metric", "value"),
    [("loss.min", 1), ("metrics.loss", 3), ("result.eval.loss", 4), ("eval.loss", 4)],
)
def test_a_metric_has_the_names_that_it_has_in_comparisons(
    rig: Rig, tmp_path: Path, storage: BaseStorage, metric: str, value: float
) -> None:
    one = plan(choices={"x": [1]}, ranges={}, sampler="grid", metric=metric)
    with reaching("direct", rig, (tmp_path / "store").as_uri()) as client:
        search = Search.begun(storage, one)
        list(driven(client.backend, search, Telling(rig)))
    (trial,) = search.trials()
    assert trial.value == value
    steps = [] if "eval" in metric else [2, 1, 3]
    assert list(trial.intermediate_values.values()) == steps


def test_a_metric_that_no_job_reports_uses_up_three_trials(
    rig: Rig, tmp_path: Path, storage: BaseStorage
) -> None:
    with reaching("direct", rig, (tmp_path / "store").as_uri()) as client:
        search = Search.begun(storage, plan(choices={"x": [1, 2]}, ranges={}, metric="los"))
        with pytest.raises(ClientError, match="none reported los: ") as told:
            list(driven(client.backend, search, Telling(rig)))
        assert "there is result.eval.loss and metrics.loss" in str(told.value)
        assert "--metric" in told.value.hint
        assert len(search.trials()) == 3
        # Whoever resumes it wants it all the same.
        with pytest.raises(ClientError, match="3 trials succeeded"):
            list(driven(client.backend, search, Telling(rig)))
        assert len(search.trials()) == TRIALS


class Exploding(Jobs):
    """Jobs whose loss is no number after the first step, until they are stopped."""

    def report(self, grant: Grant) -> None:
        self.rig.queue.report(grant.fence, Phase.RUNNING)
        bad = {8: "NaN", 9: "Infinity"}[grant.spec["parameters"]["x"]]
        lines = [MetricRecord(n, n, {"loss": bad if n else 1, "step": n}) for n in range(3)]
        assert self.rig.records.add_metrics(grant.fence, lines)


@pytest.mark.parametrize("where", ["file", "database"])
def test_a_pruner_stops_a_job_whose_loss_is_no_number(
    rig: Rig, tmp_path: Path, url: str, where: str
) -> None:
    storage = opened(url) if where == "file" else beside_the_queue(rig.url)
    with reaching("direct", rig, (tmp_path / "store").as_uri()) as client:
        search = Search.begun(storage, plan(choices={"x": [8, 9]}, ranges={}, sampler="grid"))
        said = list(driven(client.backend, search, Exploding(rig)))
    assert {trial.state for trial in search.trials()} == {TrialState.PRUNED}
    ends = {line.partition(": ")[2] for line in said if "pruned" in line}
    assert ends == {"pruned at step 1: loss nan", "pruned at step 1: loss inf"}
    storage.engine.dispose()


@pytest.mark.parametrize("budget", [{"gpu_hours": 0.05}, {"cost": 2}], ids=["hours", "cost"])
def test_a_budget_ends_a_search(
    rig: Rig, tmp_path: Path, storage: BaseStorage, budget: dict[str, float]
) -> None:
    changes = {"spec": {**SPEC, "resources": {"gpus": 1}}, "trials": None, "pruner": None}
    with reaching("direct", rig, (tmp_path / "store").as_uri()) as client:
        search = Search.begun(
            storage, plan(choices={"x": [1, 2, 9]}, ranges={}, **changes, **budget)
        )
        jobs = Jobs(rig, gpus=4)
        driver, steps = Driver(client.backend, search, print), 0
        while not driver.step():
            steps += 1
            # Not so long that a lease would end. Three GPUs use a minute in it.
            jobs.work(20)
            assert steps <= 6
        stopped = [trial for trial in search.trials() if "forge_stopped" in trial.user_attrs]
        assert stopped
        assert {trial.state for trial in stopped} == {TrialState.PRUNED}
        assert all("budget of" in trial.user_attrs["forge_stopped"] for trial in stopped)
        assert not jobs.running
        assert steps >= 4


def test_a_budget_without_a_price_ends_a_search_that_nothing_would(
    rig: Rig, tmp_path: Path, storage: BaseStorage
) -> None:
    points = {"choices": {"x": [1, 2, 3, 4]}, "ranges": {}}
    changes = {**points, "trials": None, "pruner": None, "cost": 0.5}
    with reaching("direct", rig, (tmp_path / "store").as_uri()) as client:
        search, jobs = Search.begun(storage, plan(**changes)), Jobs(rig, price=None)
        driver = Driver(client.backend, search, print)
        driver.step()
        jobs.work(20)
        with pytest.raises(ClientError, match="without a price") as told:
            driver.step()
        assert "--price-per-hour" in told.value.hint
        spent = [one.user_attrs["forge_spent"] for one in search.trials()]
        assert {(one["cost"], one["unpriced_s"]) for one in spent} == {(None, 20)}
        # The jobs of before have no price; those that follow do.
        jobs.price, steps = 0.01, 0
        driver = Driver(client.backend, search, print)
        while not driver.step():
            jobs.work(20)
            steps += 1
            assert steps <= 6


@pytest.mark.parametrize("where", ["file", "database"])
def test_a_search_has_one_process_until_it_ends_or_falls_silent(
    rig: Rig, url: str, where: str
) -> None:
    storage = opened(url) if where == "file" else beside_the_queue(rig.url)
    study, now = Search.begun(storage, plan()).study, [1000.0]
    first, second, third = (StudyLease(study, process, lambda: now[0]) for process in "abc")
    first.hold()
    now[0] += RENEWED_AFTER_S
    first.hold()
    now[0] += LAPSES_AFTER_S - 1
    with pytest.raises(ClientError, match=f"process {os.getpid()} on .* since 1970-01-01") as told:
        second.hold()
    assert told.value.exit_code == ExitCode.CONFLICT
    second.release()
    now[0] += 1
    second.hold()
    with pytest.raises(ClientError, match="has been running the search 's'"):
        first.hold()
    second.release()
    third.hold()
    # Killed on this machine: nobody needs to wait.
    study.set_user_attr(DRIVER, {**study.user_attrs[DRIVER], "pid": 2**30})
    first.hold()
    storage.engine.dispose()


def test_a_driver_stops_once_another_process_has_its_search(
    rig: Rig, tmp_path: Path, storage: BaseStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs(rig)
    with reaching("direct", rig, (tmp_path / "store").as_uri()) as client:
        search = Search.begun(storage, plan())
        backend = client.backend
        statuses = backend.statuses

        def meanwhile(ids: list[int]) -> Any:  # noqa: ANN401  as above
            jobs.work()
            study = Search.known(storage, "s").study
            if study.trials[0].state == TrialState.RUNNING:
                # As a process does that was frozen since before the driver began.
                study.tell(0, state=TrialState.FAIL)
            else:
                StudyLease(study, "other", lambda: time() + LAPSES_AFTER_S).hold()
            return statuses(ids)

        monkeypatch.setattr(backend, "statuses", meanwhile)
        monkeypatch.setattr("forge_client.search.driver.sleep", lambda _: None)
        with pytest.raises(ClientError, match="has been running the search"):
            Driver(backend, search, print).run()
        assert search.study.user_attrs[DRIVER]["process"] == "other"


def test_optuna_reads_a_study_beside_the_queue(rig: Rig, tmp_path: Path) -> None:
    with reaching("direct", rig, (tmp_path / "store").as_uri()) as client:
        storage = beside_the_queue(rig.url)
        search = Search.begun(storage, plan(sampler="tpe", trials=5))
        list(driven(client.backend, search, Jobs(rig)))
        storage.engine.dispose()
    url = f"postgresql+psycopg://{rig.url.partition('://')[2]}"
    sign = "&" if "?" in url else "?"
    theirs = RDBStorage(f"{url}{sign}options=-csearch_path%3Doptuna")
    study = optuna.load_study(study_name="s", storage=theirs)
    assert len(study.trials) == 5
    assert study.best_value == min(trial.value for trial in study.trials if trial.value is not None)
    theirs.engine.dispose()
