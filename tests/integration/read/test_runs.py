"""Runs: what jobs were given, measured, found and cost, as rows that can be sorted and exported."""

from __future__ import annotations

import csv
import json
from math import inf, isnan
from typing import TYPE_CHECKING, Any

import pytest
from forge_client.cli.jobs.runs import export
from forge_client.errors import ClientError
from forge_client.http import remote
from forge_client.sdk.rows import Rows
from forge_schema.job_filter import parse
from forge_schema.model.attempt_records import MetricRecord
from forge_schema.model.lease import Usage
from forge_schema.model.results import Run, Runs, in_order
from forge_schema.model.states import Phase, Reason
from forge_schema.read import runs
from forge_schema.read.reports import Reports
from forge_schema.read.runs import Benchmarks
from forge_schema.service.findings import Findings
from support.client.command import command
from support.client.reaching import WAYS, key, reaching
from support.client.telling import told

if TYPE_CHECKING:
    from pathlib import Path

    from support.http.api import Api
    from support.queue.rig import Rig

GIT = {"revision": "ab" * 20, "dirty": True}


def ran(rig: Rig, lr: float, losses: list[float], **more: Any) -> int:  # noqa: ANN401  its fields
    """Run a job that loses its worker after half of its steps, and does the last one again."""
    job = rig.submit(experiment="digits", name=f"lr={lr}", parameters={"lr": lr, "seed": 1}, **more)
    worker = rig.worker()
    for attempt, steps in enumerate((range(len(losses) // 2), range(len(losses))), 1):
        grant = worker.claim_one()
        rig.queue.report(grant.fence, Phase.RUNNING)
        resumed = steps[len(losses) // 2 - 1 :] if attempt > 1 else steps
        lines = [
            MetricRecord(n, step, {"step": step, "loss": losses[step] + (attempt == 1), "lr": lr})
            for n, step in enumerate(resumed)
        ]
        rig.clock.advance(10)
        assert rig.records.add_metrics(grant.fence, lines)
        if attempt == 1:
            rig.finish(grant, Reason.PREEMPTED)
        else:
            assert rig.records.add_result(
                grant.fence, {"accuracy": 1 - losses[-1], "pickled": "gA"}
            )
            rig.finish(grant)
    return job


def test_each_task_of_a_job_is_a_run_and_a_point_of_its_sweep(rig: Rig) -> None:
    tasks: list[Any] = [
        {
            "name": "first",
            "state": "succeeded",
            "parameters": {"lr": 0.5},
            "result": {"acc": 1},
            "metrics": {"loss": {"last": 1, "min": 1, "max": 3}},
            "seconds": 3,
        },
        {"state": "failed", "seconds": 1, "detail": "exit code 7"},
        {},
    ]
    job = rig.submit(sweep="s", name="pack", max_failures=0)
    alone = rig.submit(sweep="s", name="alone")
    grant, other = rig.worker().claim(2)
    assert rig.records.add_result(grant.fence, {"forge_tasks": tasks})
    rig.finish(grant, Reason.EXIT_CODE, usage=Usage(gpu_seconds=8.0))
    rig.finish(other)
    found = runs.runs(rig.database, parse("sweep:s")).items
    assert [(one.job_id, one.task, one.name) for one in found] == [
        (alone, None, "alone"),
        *((job, n, name) for n, name in enumerate(("first", "pack", "pack"))),
    ]
    _, first, second, third = found
    assert (first.state, first.reason, first.result) == ("succeeded", "succeeded", {"acc": 1})
    assert (first.value("loss.min"), first.parameters, first.gpu_seconds) == (1, {"lr": 0.5}, 6)
    assert (second.state, second.gpu_seconds, second.seconds) == ("failed", 2, 1)
    assert (third.state, third.seconds) == ("failed", 0)
    assert runs.runs(rig.database, parse("metric:loss.max>2 result:acc=1")).items == found[1:]
    assert runs.runs(rig.database, parse("result:acc<1")).items == []
    points = Benchmarks(rig.database, owner="ann", actor="user:ann").points("s", count=1)
    assert [(one["job_id"], one["task"]) for one in points] == [(job, 0), (job, 1), (job, 2)]


@pytest.mark.parametrize(
    "tasks",
    [
        {"a": 1},
        [None, 1, "x", []],
        [{"state": "x", "seconds": "y", "parameters": 1, "metrics": {"a": 1}, "result": []}],
        [{"seconds": 1e300, "metrics": {"a": {"last": [], "min": 1e-320}}, "name": 7}],
        [{}] * 5000,
    ],
)
def test_whatever_a_job_says_of_tasks_its_runs_can_be_read(rig: Rig, tasks: Any) -> None:  # noqa: ANN401  any JSON
    rig.submit(sweep="s")
    grant = rig.worker().claim_one()
    assert rig.records.add_result(grant.fence, {"forge_tasks": tasks})
    rig.finish(grant)
    found = runs.runs(rig.database, parse("sweep:s")).items
    assert 1 <= len(found) <= 1000
    assert runs.runs(rig.database, parse("metric:a>1,a.max,seconds result:a>1")).items == []
    assert {run.state for run in found} == {"succeeded"}


def test_lists_show_the_last_metric_of_the_newest_attempt(rig: Rig) -> None:
    rig.submit()
    for losses, reason in (([9, 8, 7, 6], Reason.PREEMPTED), ([5, 4], Reason.SUCCEEDED)):
        grant = rig.worker().claim_one()
        lines = [MetricRecord(n, n, {"step": n, "loss": loss}) for n, loss in enumerate(losses)]
        assert rig.records.add_metrics(grant.fence, lines)
        rig.finish(grant, reason)
    (listed,) = rig.jobs.jobs()
    assert listed["metrics"] == {"loss": 4}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_diverged_ends_with_nan(rig: Rig, tmp_path: Path, way: str) -> None:
    good = ran(rig, 0.1, [9, 5, 1, 3])
    job = rig.submit(experiment="digits", sweep="s")
    grant = rig.worker().claim_one()
    losses: tuple[float | str, ...] = ("NaN", 1.0, 0.5, "NaN")
    lines = [MetricRecord(n, n, {"loss": loss, "mae": "Infinity"}) for n, loss in enumerate(losses)]
    lines[0].values["big"] = 10**400
    # It goes on with lines about something else.
    lines += [MetricRecord(n, n, {"lr": 0.1, "progress": 0.1}) for n in range(4, 12)]
    for batch in (lines[:1], lines[1:3], lines[3:]):
        assert rig.records.add_metrics(grant.fence, batch)
    with reaching(way, rig, (tmp_path / "store").as_uri()) as client:
        runs = client.runs("experiment:digits", sort="loss", descending=True)
        assert [run.job_id for run in runs] == [good, job]
        assert (runs[1].value("loss"), runs[1].value("loss.best")) == ("NaN", 0.5)
        assert len(client.runs("state:running", sort="metrics.mae.best")) == 1
        assert (runs[1].value("mae"), runs[1].value("mae.best")) == ("Infinity", None)
        listed, _ = client.jobs("experiment:digits")
        shown = {"loss": "NaN", "mae": "Infinity", "lr": 0.1, "big": "Infinity"}
        assert listed.metrics == shown
        frame = runs.to_frame()
        assert [isnan(loss) for loss in frame["metrics.loss.last"]] == [False, True]
        assert frame["metrics.mae.last"][1] == inf
        (point,) = client.sweep("s").points()
        assert (point.metrics, point.value("loss.best")) == (runs[1].metrics, 0.5)
    # A chart of summaries has a gap where one of lines has it.
    spans = rig.rows("SELECT values FROM metric_span WHERE job_id = %s ORDER BY span", job)
    assert [span["values"]["loss"] for span in spans] == [
        [2, 0.5, 1, 1.5, "NaN"],
        [2, 0.5, 1, 1.5, 0.5],
    ]
    assert ["mae" in span["values"] for span in spans] == [True, False]
    assert spans[0]["values"]["mae"] == [0, None, None, 0, "Infinity"]


def test_of_many_metrics_those_that_came_first_are_summed_up(rig: Rig) -> None:
    rig.submit()
    grant = rig.worker().claim_one()
    counters = {"step": 1, "total": 9, "progress": 0.1}
    lines: list[dict[str, Any]] = [
        {"train_loss": 1},
        # In one batch, with longer names than those that are too late.
        *({f"validation_{n}": 1} for n in range(2)),
        {f"m{n}": n for n in range(59, -1, -1)} | {"m100": 1},
        {"m60": 1, "m61": 1, "train_loss": 2},
        {"x": 1, "m0": 7},
        counters,
    ]
    for batch in ((0,), (1, 2, 3, 4), (5, 6), (6,)):
        numbered = [MetricRecord(n, n, lines[n]) for n in batch]
        assert rig.records.add_metrics(grant.fence, numbered)
    came_first = {"train_loss", "validation_0", "validation_1", *(f"m{n}" for n in range(60))}
    for span in rig.rows("SELECT values FROM metric_span"):
        assert span["values"].keys() == came_first | {"m100", "progress"}
        assert span["values"]["train_loss"] == [2, 1, 2, 3, 2]
        assert span["values"]["m0"] == [2, 0, 7, 7, 7]
        assert span["values"]["validation_1"] == [1, 1, 1, 1, 1]
    # A list has few of them: first a loss, then those with short names.
    (listed,) = rig.jobs.jobs()
    assert [*listed["metrics"].items()] == [("train_loss", 2), ("m0", 7), ("m1", 1), ("m2", 2)]


@pytest.fixture
def three(rig: Rig) -> list[int]:
    """Three runs of one experiment, and a job of another."""
    jobs = [
        ran(rig, 0.1, [9, 5, 1, 3]),
        ran(rig, 0.01, [9, 6, 4, 2], git=GIT),
        rig.submit(experiment="digits", name="waits"),
    ]
    rig.submit(experiment="other")
    rig.submit()
    return jobs


@pytest.mark.parametrize("way", WAYS)
def test_runs_are_sorted_by_what_they_measured(
    rig: Rig, tmp_path: Path, way: str, three: list[int]
) -> None:
    first, second, waits = three
    with reaching(way, rig, (tmp_path / "store").as_uri()) as client:
        runs = client.runs("experiment:dig*", sort="loss", curve="loss")
        assert [run.job_id for run in runs] == [second, first, waits]
        best = client.runs("experiment:digits", sort="loss.best", count=2)
        assert [run.job_id for run in best] == [first, second]
        highest = client.runs("experiment:digits", sort="accuracy", descending=True)
        assert [run.job_id for run in highest] == [second, first, waits]
        assert [run.job_id for run in client.runs("experiment:digits")] == three[::-1]
        (found,) = client.runs("experiment:digits name:lr=0.01")
        assert [one.experiment for one in client.experiments()] == ["other", "digits"]
        assert client.experiments(owner="ben") == []
        frame = client.runs("experiment:digits", sort="job_id").to_frame()
    assert (found.attempt, found.state, found.dirty) == (2, "succeeded", True)
    assert (found.parameters, found.result) == (
        {"lr": 0.01, "seed": 1},
        {"accuracy": -1, "pickled": "gA"},
    )
    assert found.seconds == pytest.approx(20)
    # The first attempt measured one more at each step.
    measured = [found.value(f"loss{which}") for which in ("", ".best", ".min", ".max", ".last")]
    assert measured == [2, 2, 2, 10, 2]
    assert (found.value("lr"), found.value("metrics.lr"), found.value("nothing")) == (
        0.01,
        0.01,
        None,
    )
    # The step that was done again is there once.
    assert runs[0].curve == [10, 6, 4, 2]
    assert list(frame["parameters.lr"])[:2] == [0.1, 0.01]
    assert list(frame["metrics.loss.min"])[:2] == [1, 2]


def test_the_view_has_a_row_for_each_run(rig: Rig, three: list[int]) -> None:
    rows = Reports(rig.database).rows("runs", by=("experiment",))
    assert [(row["experiment"], row["jobs"]) for row in rows if row["experiment"]] == [
        ("digits", 3), ("other", 1),
    ]  # fmt: skip
    (row,) = rig.rows("SELECT metrics, revision FROM runs WHERE job_id = %s", three[1])
    assert row["metrics"]["loss"] == {"last": 2, "min": 2, "max": 10}
    assert row["revision"] == GIT["revision"]


def test_runs_are_shown_and_exported(
    api: Api, tmp_path: Path, three: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def counted(findings: Findings, *args: Any, **how: Any) -> Runs:  # noqa: ANN401  as asked
        asked.append(tuple(how["curve"]))
        return asking(findings, *args, **how)

    asking = Findings.runs
    monkeypatch.setattr(Findings, "runs", counted)
    forge = command(tmp_path, FORGE_URL=api.url, FORGE_API_KEY=key(api.rig))
    runs = forge("runs", "experiment:digits", "--sort", "loss.best").stdout.splitlines()
    # One request is the whole answer, and draws of the columns shown the first that is a metric.
    assert asked == [("loss.best", "*")]
    assert runs[0].endswith("  CURVE loss")
    shown = "lr loss loss.best result.accuracy TIME COST REVISION CURVE"
    assert [one for one in shown.split() if one not in runs[0].split()] == []
    assert "▁" in runs[1]
    assert [int(line.split()[0]) for line in runs[1:]] == three
    chosen = forge("runs", "experiment:digits", "--columns", "job_id,lr,accuracy,loss").stdout
    assert asked[1:] == [("job_id", "lr", "accuracy", "loss")]
    assert all(
        ("▁" in line) == (line.split()[0] in map(str, three[:2]))
        for line in chosen.splitlines()[1:]
    )
    told(forge("runs", "--metric", "los"), 2, "has a metric 'los'", "did you mean loss?")
    three_columns = ("--sort", "lr", "--columns", "name,loss.best,state")
    forge("runs", "experiment:digits", *three_columns, "--to", tmp_path / "chosen.csv")
    assert (tmp_path / "chosen.csv").read_text(encoding="utf-8").splitlines() == [
        "name,loss.best,state", "lr=0.01,2.0,succeeded", "lr=0.1,1.0,succeeded", "waits,,queued",
    ]  # fmt: skip
    forge("runs", "--by", "experiment", "--to", tmp_path / "groups.csv")
    with (tmp_path / "groups.csv").open(encoding="utf-8", newline="") as file:
        assert [row["experiment"] for row in csv.DictReader(file)] == ["other", "digits"]
    forge("runs", "-n", "1", "--to", tmp_path / "one.csv")
    assert len((tmp_path / "one.csv").read_text(encoding="utf-8").splitlines()) == 2
    groups = json.loads(forge("runs", "--by", "experiment", "-o", "json").stdout)
    assert [(group["experiment"], group["runs"], group["states"]) for group in groups] == [
        ("other", 1, {"queued": 1}),
        ("digits", 3, {"queued": 1, "succeeded": 2}),
    ]
    told(forge("runs", "--by", "owner", "--sort", "cost"), 2, "do not apply", "leave --by out")
    for name in ("runs.csv", "runs.parquet"):
        done = forge("runs", "experiment:digits", "--sort", "job_id", "--to", tmp_path / name)
        assert done.returncode == 0, done.stderr
    with (tmp_path / "runs.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["metrics.loss.max"] for row in rows] == ["10.0", "10.0", ""]
    import pyarrow.parquet as pq  # noqa: PLC0415  slow to load, in each test process

    read = pq.read_table(tmp_path / "runs.parquet")
    assert read["metrics.loss.max"].to_pylist() == [10, 10, None]
    export([{"loss": "-Infinity"}, {"loss": 1}, {}], ["loss"], tmp_path / "one.parquet")
    assert pq.read_table(tmp_path / "one.parquet")["loss"].to_pylist() == [-inf, 1, None]
    assert ("result" in rows[0], rows[0]["result.accuracy"]) == (False, "-2")
    wrong = forge("runs", "--to", "runs.txt")
    assert (wrong.returncode, "neither a .csv nor a .parquet" in wrong.stderr) == (2, True)


def test_files_and_data_frames_take_what_jobs_are_given(tmp_path: Path) -> None:
    given = {"job_id": 1, "name": "=cmd", "owner": "ann", "state": "ready", "submitted_at": 0}
    columns: dict[str, list[Any]] = {
        "whole": [1, 2],
        "large": [10**40, 1],
        "beside": [-(2**63) - 1, 0.5],
        "larger": [10**400, 1],
        "text": ["+1", "-Infinity"],
    }
    runs = Rows(
        Run.model_validate({**given, "parameters": {name: two[n] for name, two in columns.items()}})
        for n in range(2)
    )
    rows = [run.model_dump() for run in runs]
    for name in ("runs.csv", "runs.parquet"):
        export(rows, [], tmp_path / name)
    with (tmp_path / "runs.csv").open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["name"], first["parameters.text"]) == ("'=cmd", "'+1")
    assert (second["parameters.text"], second["parameters.larger"]) == ("-Infinity", "1")
    import pyarrow.parquet as pq  # noqa: PLC0415  slow to load, in each test process

    frame = runs.to_frame()
    assert ("curve" in frame, "result" in frame) == (False, True)
    frame[[f"parameters.{name}" for name in columns]].to_parquet(tmp_path / "frame.parquet")
    expected = {
        **columns,
        "large": [1e40, 1.0],
        "beside": [-(2.0**63), 0.5],
        "larger": [str(10**400), "1"],
    }
    for name in ("runs.parquet", "frame.parquet"):
        read = pq.read_table(tmp_path / name)
        assert {key: read[f"parameters.{key}"].to_pylist() for key in columns} == expected
        assert str(read["parameters.whole"].type) == "int64"


@pytest.mark.parametrize("way", WAYS)
def test_all_that_match_are_sorted_and_it_shows_if_there_are_more(
    rig: Rig, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As many pages and limits as there are in 10,000 jobs, in a few.
    monkeypatch.setattr(runs, "PAGE", 2)
    monkeypatch.setattr(remote, "PAGE", 2)
    jobs = [
        rig.submit(experiment="e", sweep=f"s-{n % 2}", owner="ann" if n else "bob",
                   parameters={"lr": lr, **({"old": 1} if n == 0 else {})})
        for n, lr in enumerate((0.3, 0.5, 0.1, 0.4, 0.2))
    ]  # fmt: skip
    one, two, three, four, five = jobs
    with reaching(way, rig, (tmp_path / "store").as_uri()) as client:
        first = client.runs("experiment:e", sort="lr", count=2)
        assert ([run.job_id for run in first], first.found, first.more) == ([three, five], 5, False)
        every = client.runs("experiment:e", sort="lr", descending=True, count=4)
        assert ([run.job_id for run in every], every.found) == ([two, four, one, five], 5)
        # Only the oldest has it.
        assert client.runs(sort="old", count=1)[0].job_id == one
        newest = client.runs(count=3)
        assert ([run.job_id for run in newest], newest.found, newest.more) == (
            [five, four, three], 3, True,
        )  # fmt: skip
        groups = client.run_groups("param:lr<0.5", by="sweep")
        assert [(one.name, one.runs, one.states) for one in groups] == [
            ("s-0", 3, {"queued": 3}), ("s-1", 1, {"queued": 1}),
        ]  # fmt: skip
        assert groups[0].first_submitted_at <= groups[0].submitted_at
        with pytest.raises(ClientError, match="has a column 'lrr'") as refused:
            client.runs(sort="lrr", count=1)
        assert (refused.value.code, refused.value.hint) == ("column_unknown", "did you mean lr?")
        assert client.runs("owner:nobody", sort="lrr") == []
        for module in (runs, remote):
            monkeypatch.setattr(module, "MOST_RUNS", 3)
        for some in (client.runs(sort="lr", count=2), client.run_groups(by="owner")):
            assert (some.found, some.more) == (3, True)
        assert [run.job_id for run in client.runs(sort="lr", count=4)] == [three, five, four]


def test_pages_of_runs_follow_each_other(api: Api, three: list[int]) -> None:
    ann, path, seen = api.key(), "/api/v1/queue/runs?count=2&q=experiment:digits", []
    for found, more in ((2, True), (1, False)):
        page = ann.get(path)
        seen += [run["job_id"] for run in page["items"]]
        assert (page["found"], page["more"], page["next"] is None) == (found, more, not more)
        path = page["next"]
    assert seen == three[::-1]
    assert ann.get("/api/v1/queue/runs?sort=lr&count=1")["next"] is None


def test_values_of_different_kinds_are_sorted_too() -> None:
    given = {"job_id": 1, "name": "a", "owner": "ann", "state": "ready", "submitted_at": 0}
    values = [None, "big", 3, True, 0.5]
    runs = [Run.model_validate({**given, "parameters": {"x": value}}) for value in values]
    assert [run.value("x") for run in in_order(runs, "x")] == [0.5, True, 3, "big", None]
    backwards = in_order(runs, "x", descending=True)
    assert [run.value("x") for run in backwards] == ["big", 3, True, 0.5, None]
