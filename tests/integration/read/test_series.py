"""The series of a job: the points of a chart, cut as their rule says, and no more."""

from __future__ import annotations

import math
from math import sin
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from forge_client import ClientError
from forge_schema.model.attempt_records import MetricRecord, Sample
from forge_schema.model.states import Reason
from forge_schema.model.stored import MOST_KEYS
from forge_schema.read import series as module
from forge_schema.read.series import BYTES, LINES, MOST_ATTEMPTS, SLACK, SeriesReader, WantedSeries
from support.client.reaching import WAYS, reaching
from support.database.explain import buffers

if TYPE_CHECKING:
    from pathlib import Path

    from forge_schema.model.lease import Grant
    from pydantic import JsonValue
    from support.queue.rig import Rig

UUID = "GPU-8a2b"


def write(rig: Rig, grant: Grant, lines: list[dict[str, Any]], first: int = 0) -> None:
    """Write metric lines, a second apart."""
    for number, values in enumerate(lines, first):
        rig.clock.advance(1)
        line = MetricRecord(number, values.get("step"), values)
        assert rig.records.add_metrics(grant.fence, [line])


def runs(values: list[float], points: int) -> list[list[float]]:
    """Cut values into runs of one length, except for the last."""
    each = math.ceil(len(values) / points) or 1
    return [values[n : n + each] for n in range(0, len(values), each)]


def by_key(found: dict[str, Any]) -> dict[tuple[str, str | None], dict[str, Any]]:
    return {(item["key"], item["gpu"]): item for item in found["items"]}


def test_points_are_runs_of_what_was_written(rig: Rig) -> None:
    job = rig.submit()
    grant = rig.worker().claim_one()
    lines: list[dict[str, Any]] = [{"step": n, "loss": sin(n * n)} for n in range(103)]
    for number in range(0, 103, 20):
        lines[number]["accuracy"] = number / 103
    lines[7] |= {"note": "text", "flag": True, "nested": {"a": 1}, "big": 10**400, "none": None}
    write(rig, grant, lines)
    found = SeriesReader(rig.database).of(job, WantedSeries(points=10))
    assert (found["attempt"], found["rank"], found["running"], found["left_off"]) == (1, 0, True, 0)
    assert (found["since"], found["until"]) == (grant_time(rig), rig.clock.now)
    curves = by_key(found)
    assert set(curves) == {("loss", None), ("accuracy", None), ("big", None)}
    assert (curves["big", None]["newest"], curves["big", None]["max"]) == ("Infinity", [None])
    loss = curves["loss", None]
    cut = runs([line["loss"] for line in lines], 10)
    assert (loss["source"], loss["count"], len(cut)) == ("metric", 103, 10)
    assert loss["min"] == [min(run) for run in cut]
    assert loss["max"] == [max(run) for run in cut]
    assert loss["last"] == [run[-1] for run in cut]
    assert loss["avg"] == pytest.approx([sum(run) / len(run) for run in cut])
    steps = [run[-1] for run in runs([float(n) for n in range(103)], 10)]
    assert loss["step"] == steps
    began = grant_time(rig).timestamp()
    assert loss["t"] == [began + step + 1 for step in steps]
    accuracy = curves["accuracy", None]
    assert accuracy["last"] == [line["accuracy"] for line in lines if "accuracy" in line]
    assert accuracy["min"] == accuracy["avg"] == accuracy["max"] == accuracy["last"]
    assert accuracy["step"] == [0, 20, 40, 60, 80, 100]


def grant_time(rig: Rig) -> Any:  # noqa: ANN401  a moment
    return rig.row("SELECT claimed_at FROM lease")["claimed_at"]


@pytest.mark.parametrize("way", WAYS)
def test_both_ways_tell_the_same(rig: Rig, tmp_path: Path, way: str) -> None:
    with reaching(way, rig, (tmp_path / "store").as_uri()) as client:
        job = rig.submit()
        assert client.backend.findings.series(job).items == []
        grant = rig.worker().claim_one()
        write(rig, grant, [{"step": n, "loss": n, "lr": n} for n in range(9)])
        told = client.backend.findings.series(job, attempt=1, rank=0, keys=["lr"], points=3)
        wanted = WantedSeries(attempt=1, keys=["lr"], points=3)
        assert told.model_dump() == SeriesReader(rig.database).of(job, wanted)
        assert client.backend.findings.series(job, points=3).items[1] == told.items[0]
        assert client.backend.findings.series(job, points=3, contains="R").items == told.items
        part = client.job(job).curves(since=4, until=6)
        assert part.model_dump() == SeriesReader(rig.database).of(
            job, WantedSeries(since=4, until=6)
        )
        with pytest.raises(ClientError, match="there is no job"):
            client.backend.findings.series(job + 1)


def test_samples_tell_of_the_processes_and_of_each_gpu(rig: Rig) -> None:
    job = rig.submit()
    grant = rig.worker().claim_one()
    for number in range(3):
        look: dict[str, JsonValue] = {"utilisation": 10 * number, "power_w": 99.5, "lost": True}
        values: dict[str, JsonValue] = {
            "memory_mb": number,
            "gpus": {UUID: look, "GPU-2": {"ecc": 0}},
        }
        assert rig.records.add_samples(grant.fence, [Sample(number, values)])
    odd: list[dict[str, JsonValue]] = [{"gpus": [1]}, {"gpus": {UUID: 7}}, {"gpus": None}]
    kept = [Sample(3 + n, values) for n, values in enumerate(odd)]
    assert rig.records.add_samples(grant.fence, kept)
    found = SeriesReader(rig.database).of(job)
    curves = by_key(found)
    assert {item["source"] for item in found["items"]} == {"sample"}
    assert set(curves) == {
        ("memory_mb", None), ("utilisation", UUID), ("power_w", UUID), ("ecc", "GPU-2"),
    }  # fmt: skip
    assert curves["utilisation", UUID]["last"] == [0, 10, 20]
    for wanted in (WantedSeries(keys=["power_w"]), WantedSeries(contains="Power")):
        assert list(by_key(SeriesReader(rig.database).of(job, wanted))) == [("power_w", UUID)]


def test_curves_go_over_all_attempts(rig: Rig) -> None:
    job = rig.submit()
    worker = rig.worker()
    series = SeriesReader(rig.database)
    assert series.of(job) == {
        "attempt": None, "began": None, "rank": 0, "since": None, "until": None, "running": False,
        "left_off": 0, "items": [], "superseded": [], "joins": [],
    }  # fmt: skip
    began = rig.clock.now
    for attempt in (1, 2, 3):
        grant = worker.claim_one()
        if attempt < 3:
            write(rig, grant, [{"attempt": attempt}])
            rig.finish(grant, Reason.PREEMPTED)
    found = series.of(job)
    assert (found["attempt"], found["running"], found["items"][0]["last"]) == (2, False, [1, 2])
    assert series.of(job, WantedSeries(attempt=1))["items"][0]["last"] == [1]
    assert found["since"] > found["began"] == began
    third = series.of(job, WantedSeries(attempt=3))
    assert (third["attempt"], third["running"], third["items"]) == (3, True, [])
    assert third["began"] == third["since"]
    for absent in (WantedSeries(attempt=4), WantedSeries(rank=1)):
        assert series.of(job, absent)["items"] == []
    assert series.of(job + 1)["items"] == []


def test_what_a_later_attempt_does_again_is_superseded(rig: Rig) -> None:
    job = rig.submit()
    worker = rig.worker()
    # The third goes back further than the second began: its steps replace those of both.
    begun: list[float] = []
    for attempt, steps in enumerate((range(10), range(6, 9), range(4, 12)), 1):
        grant = worker.claim_one()
        begun.append(rig.clock.now.timestamp())
        write(rig, grant, [{"step": n, "loss": 100 * attempt + n} for n in steps])
        write(rig, grant, [{"note": attempt}], first=20)
        rig.finish(grant, Reason.PREEMPTED)
    found = SeriesReader(rig.database).of(job)
    curves = by_key(found)
    loss = curves["loss", None]
    assert loss["step"] == [*range(12)]
    assert loss["last"] == [*range(100, 104), *range(304, 312)]
    old = [(one["key"], one["attempt"], one["step"]) for one in found["superseded"]]
    assert old == [("loss", 1, [*range(4, 10)]), ("loss", 2, [6, 7, 8])]
    # Values without a step are never replaced.
    assert curves["note", None]["last"] == [1, 2, 3]
    assert found["joins"] == [
        {"attempt": 2, "step": 6, "t": begun[1]},
        {"attempt": 3, "step": 4, "t": begun[2]},
    ]
    alone = SeriesReader(rig.database).of(job, WantedSeries(attempt=1))
    assert (alone["superseded"], alone["joins"]) == ([], [])
    assert by_key(alone)["loss", None]["step"] == [*range(10)]


def test_a_curve_has_a_gap_where_it_is_no_finite_number(rig: Rig) -> None:
    job = rig.submit()
    losses = [0.5, "NaN", 0.25, "NaN", "-Infinity", "NaN"]
    write(rig, rig.worker().claim_one(), [{"step": n, "loss": x} for n, x in enumerate(losses)])

    def loss(points: int) -> dict[str, Any]:
        return by_key(SeriesReader(rig.database).of(job, WantedSeries(points=points)))["loss", None]

    alone = [0.5, None, 0.25, None, None, None]
    for key in ("min", "avg", "max", "last"):
        assert loss(6)[key] == alone
        assert loss(3)[key] == [0.5, 0.25, None]
    assert (loss(6)["count"], loss(6)["step"], loss(6)["newest"]) == (2, [*range(6)], "NaN")


def test_what_one_call_reads_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    job = rig.submit()
    grant = rig.worker().claim_one()
    many = [MetricRecord(n, float(n), {"loss": n, **_wide(n)}) for n in range(1000)]
    assert rig.records.add_metrics(grant.fence, many)
    samples = [Sample(n, {"memory_mb": n}) for n in range(1000)]
    assert rig.records.add_samples(grant.fence, samples)
    rig.rows("DELETE FROM metric WHERE number BETWEEN 300 AND 600")
    series = SeriesReader(rig.database)
    found = series.of(job, WantedSeries(keys=["loss"]))
    assert (found["items"][0]["count"], found["items"][0]["last"][-1]) == (699, 999)
    all_keys = series.of(job, WantedSeries(points=2))
    assert all_keys["left_off"] == 40
    assert len([i for i in all_keys["items"] if i["source"] == "metric"]) == MOST_KEYS
    monkeypatch.setattr(module, "LINES", 100)
    # Nothing sums them up.
    rig.rows("DELETE FROM metric_span")
    fewer = by_key(series.of(job, WantedSeries(keys=["loss", "memory_mb"])))
    assert fewer["memory_mb", None]["last"] == list(range(9, 1000, 10))
    loss = fewer["loss", None]["last"]
    assert loss == sorted({n if n < 300 else max(n, 601) for n in range(9, 1000, 10)})
    monkeypatch.setattr(module, "BYTES", 10 * 2000)
    assert by_key(series.of(job, WantedSeries(keys=["loss"])))["loss", None]["count"] < 30


def test_a_long_curve_keeps_its_extremes_and_has_more_points_where_it_is_zoomed_in(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = rig.submit()
    grant = rig.worker().claim_one()
    values: dict[int, dict[str, Any]] = {n: {"loss": 1.0 + n} for n in range(3000)}
    values |= {1234: {"loss": -7.5}, 9: {"lr": 0.1}, 2399: {"loss": "NaN"}}
    values |= {n: {"loss": "Infinity"} for n in range(200, 300)}
    values[5]["grad"], values[2950]["grad"] = 1.0, "NaN"
    for first in range(0, 3000, 130):
        part = range(first, min(first + 130, 3000))
        rig.clock.advance(60)
        lines = [MetricRecord(n, 10.0 * n, {"step": 10 * n, **values[n]}) for n in part]
        assert rig.records.add_metrics(grant.fence, lines)
        # It committed, and the worker saw a time-out.
        assert rig.records.add_metrics(grant.fence, lines)
    # Thinning takes lines, and what sums them up stays.
    rig.rows("DELETE FROM metric WHERE mod(number, 7) > 0 AND number < 2999")
    monkeypatch.setattr(module, "LINES", 500)
    series = SeriesReader(rig.database)

    def loss(**wanted: Any) -> dict[str, Any]:  # noqa: ANN401  its fields
        return by_key(series.of(job, WantedSeries(**wanted)))["loss", None]

    whole = loss()
    assert (whole["count"], min(whole["min"]), max(whole["max"])) == (2898, -7.5, 3000)
    # With a gap where none is a finite number.
    assert whole["step"] == [10.0 * n for n in range(99, 3000, 100) if n != 299]
    assert whole["last"][-1] == 3000
    assert whole["last"][22] == 2399
    assert sum(a * 100 for a in whole["avg"][1:22]) == pytest.approx(
        sum(values[n]["loss"] for n in [*range(100, 200), *range(300, 2300)])
    )
    grad = by_key(series.of(job))["grad", None]
    assert (grad["step"], grad["last"], grad["newest"]) == ([990.0, 29_990.0], [1.0, None], "NaN")
    # The lines themselves, of the hundreds that overlap the range.
    near = loss(x="step", since=12_000, until=12_400)
    assert near["step"] == [10.0 * n for n in range(1204, 1300, 7)]
    later = loss(x="time", since=grant_time(rig).timestamp() + 24 * 60)
    assert later["step"][-1] == 29_990
    assert later["step"][0] > 25_000
    assert series.of(job, WantedSeries(x="step", since=10**6))["items"] == []


def _wide(number: int) -> dict[str, int]:
    # Together 104 keys, and about two thousand bytes.
    return {f"key {n:03}{'x' * 8}": number for n in range(103)}


def test_other_jobs_cost_it_nothing(rig: Rig) -> None:
    job = rig.submit()
    grant = rig.worker().claim_one()
    write(rig, grant, [{"loss": n} for n in range(50)])
    rig.records.add_samples(grant.fence, [Sample(0, {"memory_mb": 1})])
    params = {
        "job_id": job, "token": grant.fence.token, "rank": 0, "attempt": None, "keys": None,
        "since": rig.clock.now - SLACK, "until": rig.clock.now + SLACK, "lines": LINES,
        "bytes": BYTES, "points": 500, "most_keys": MOST_KEYS, "count": MOST_ATTEMPTS,
        "contains": None,
    }  # fmt: skip
    many = {key: [params[key]] for key in ("since", "until")}
    metrics = {**params, **many, "tokens": [params["token"]], "below": [None]}
    metrics |= {"by_step": True, "since_x": None, "until_x": None}
    asked: dict[str, dict[str, Any]] = {
        "series_attempts": params,
        "series_metrics": metrics,
        "series_samples": params,
    }

    def touched() -> list[int]:
        with psycopg.connect(rig.url) as connection:
            return [buffers(connection, name, its)[0] for name, its in asked.items()]

    before = touched()
    for table in ("metric", "sample"):
        rig.rows(
            f"INSERT INTO {table} (job_id, token, rank, number, at, attempt, values)"
            " SELECT %s + n / 10, 9, 0, n, forge_now(), 1, '{}' FROM generate_series(10, 30000) n",
            job,
        )
    # One more level of the index, once per lookup.
    assert all(after <= was + 40 for was, after in zip(before, touched(), strict=True))
