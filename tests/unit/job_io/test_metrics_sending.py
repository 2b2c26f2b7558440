"""How many lines a call has, and what becomes of those that the queue does not take."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.errors import ForgeError
from forge_schema.model.states import Reason, Standing
from forge_worker.attempt import Stop
from forge_worker.circuit_breaker import CircuitOpen
from forge_worker.clock import opening
from forge_worker.job_io import metrics_sender, metrics_tail
from forge_worker.job_io.metrics_tail import MetricsTail, Settling
from support.workers.attempts import MetricsQueue, attempt_of, some_grant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from forge_schema.model.attempt_records import MetricLines, MetricRecord
    from forge_worker.attempt import LiveAttempt


class TooLarge(ForgeError):
    """A proxy's or a server's refusal."""

    code = "object_too_large"


class Queue(MetricsQueue):
    """Takes a call unless `fails` tells what it raises; each takes a second."""

    def __init__(self, fails: Callable[[Sequence[MetricRecord]], Exception | None]) -> None:
        super().__init__()
        self.fails = fails
        self.calls: list[int] = []
        self.answers = True
        self.now = 0.0
        self.asked: Callable[[], None] = lambda: None

    def record(self, fence: object, record: MetricLines) -> bool:
        self.now += 1
        self.calls.append(len(record.lines))
        self.asked()
        if (error := self.fails(record.lines)) is not None:
            raise error
        return super().record(fence, record)

    def report(self, *_: object) -> Standing:
        self.now += 1
        if not self.answers:
            raise CircuitOpen("it is away")
        return Standing.OK


def written(folder: Path, *lines: dict[str, Any]) -> LiveAttempt:
    """Return an attempt whose job has ended and wrote these lines."""
    attempt = attempt_of(some_grant(), folder)
    attempt.folders.metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return attempt


def settled(attempt: LiveAttempt, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> str:
    """Store the last lines; return what the job's log says then."""
    monkeypatch.setattr(metrics_tail, "PAUSE_S", 0.0)
    monkeypatch.setattr(metrics_tail, "TRY_S", 0.0)
    tail = MetricsTail(attempt, queue)  # type: ignore[arg-type]
    Settling(attempt, queue, tail, clock=lambda: queue.now).settle()  # type: ignore[arg-type]
    return attempt.folders.log.read_text()


def test_a_call_that_took_too_long_is_followed_by_shorter_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = DatabaseUnreachable("canceling statement due to statement timeout")
    queue = Queue(lambda lines: late if len(lines) > 700 else None)
    attempt = written(tmp_path, *({"step": n} for n in range(12_000)))
    assert settled(attempt, queue, monkeypatch) == ""
    assert [line["step"] for line in queue.lines] == [*range(12_000)]
    assert queue.calls[:4] == [5000, 500, 1000, 100]
    assert max(queue.calls) == 5000


@pytest.mark.parametrize("error", [TooLarge("no"), ValueError("no")])
def test_a_line_that_is_refused_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    queue = Queue(lambda lines: error if any("bad" in line.values for line in lines) else None)
    lines: list[dict[str, Any]] = [{"step": n} for n in range(3000)]
    lines[1234] = lines[1500] = {"bad": 1}
    said = settled(written(tmp_path, *lines), queue, monkeypatch)
    assert [line["step"] for line in queue.lines] == [
        *range(1234),
        *range(1235, 1500),
        *range(1501, 3000),
    ]
    assert said.count("the queue refuses") == 1
    assert "the queue refuses line 1235 of $FORGE_METRICS_FILE, which was not stored: no" in said
    assert len(queue.calls) < 200


def test_a_queue_that_takes_no_lines_but_answers_is_not_asked_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(lambda _: DatabaseUnreachable("no time"))
    attempt = written(tmp_path, *({"step": n} for n in range(300)))
    said = settled(attempt, queue, monkeypatch)
    assert "300 lines of metrics were not stored, after 0 that were: the queue took none" in said
    assert "no time" in said
    assert queue.now < 3 * metrics_tail.FAILING_S
    assert set(queue.calls) <= {300, 50}


def test_the_time_in_which_the_queue_is_away_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(lambda _: None if queue.answers else CircuitOpen("it is away"))
    queue.answers = False

    def comes_back() -> None:
        queue.answers = queue.now > 10 * metrics_tail.ENDED_S

    queue.asked = comes_back
    attempt = written(tmp_path, {"step": 1})
    assert settled(attempt, queue, monkeypatch) == ""
    assert queue.lines == [{"step": 1}]


@pytest.mark.parametrize("how", ["cancelled", "leaving", "lost", "before", "long"])
def test_what_ends_the_storing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    attempt = written(tmp_path, *({"step": n} for n in range(400)))
    monkeypatch.setattr(metrics_sender, "ROWS", 1)
    cancelled = Stop(Reason.CANCELLED, "cancelled on request")
    queue = Queue(lambda _: None)

    def third() -> None:
        if len(queue.calls) == 3:
            if how == "cancelled":
                attempt.request_stop(cancelled)
            elif how == "lost":
                attempt.lose()

    queue.asked = third
    if how == "before":
        attempt.request_stop(cancelled)
    if how == "leaving":
        attempt.request_stop(Stop(Reason.PREEMPTED, "spot", window=opening(0)))
    said = settled(attempt, queue, monkeypatch)
    stored, why = {
        "cancelled": (3, "cancelled on request"),
        "leaving": (1, "the worker is leaving"),
        "lost": (3, ""),
        "before": (30, "storing them took longer than 30 s"),
        "long": (300, "storing them took longer than 5 min"),
    }[how]
    assert len(queue.lines) == stored
    lost = f"{400 - stored} lines of metrics were not stored, after {stored} that were: {why}"
    assert said == (f"forge: {lost}\n" if why else "")
