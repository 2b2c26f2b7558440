"""Sending samples: numbers without gaps, lost answers, a driver that hangs."""

from __future__ import annotations

import json
from itertools import count
from threading import Event
from typing import TYPE_CHECKING, cast

import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_worker import attempt as attempts
from forge_worker.attempt import LiveAttempt
from forge_worker.job_io import usage
from forge_worker.job_io.usage import Sampler
from forge_worker.machine.gpu_health import GpuLook, GpuMeter
from forge_worker.queue.gateway import Gateway
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from forge_schema.model.attempt_records import Samples
    from forge_schema.model.lease import Fence


class Queue:
    """Keeps samples as the queue does, and loses answers when told to."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.asked = 0
        self.loses = 0
        self.held = True

    def record(self, _fence: Fence, record: Samples) -> bool:
        self.asked += 1
        if self.held:
            self.kept += [s.number for s in record.samples if s.number >= len(self.kept)]
        if self.loses:
            self.loses -= 1
            raise DatabaseUnreachable("the answer was lost")
        return self.held


class Meter:
    """A GPU that has used one more joule at each look."""

    def __init__(self) -> None:
        self.joules = count()
        self.hangs = Event()
        self.hangs.set()

    def look(self, uuids: Iterable[str]) -> dict[str, GpuLook]:
        self.hangs.wait(60)
        return {uuid: GpuLook(energy_j=float(next(self.joules))) for uuid in uuids}


@pytest.fixture
def attempt(tmp_path: Path) -> LiveAttempt:
    return attempt_of(some_grant(), tmp_path / "attempt")


def driven(queue: Queue, meter: Meter) -> Sampler:
    """Return a sampler that is stepped by hand; a second passes between two looks."""
    clock = map(float, count())
    return Sampler(
        cast("Gateway", queue), cast("GpuMeter", meter), sample_s=2, clock=lambda: next(clock)
    )


def test_samples_are_repeated_until_they_are_answered(attempt: LiveAttempt) -> None:
    queue = Queue()
    looking = driven(queue, Meter())
    seen = looking.watch(attempt, ["GPU-a"])
    queue.loses = 2
    for _ in range(5):
        looking.step()
    for _ in range(2):
        with pytest.raises(DatabaseUnreachable):
            looking.shipper.step()
    assert looking.last(seen).energy_j == 5
    assert queue.kept == [0, 1, 2, 3]
    assert json.loads((attempt.folders.root / usage.FILE).read_text())["next"] == 4


def test_later_agent_goes_on_counting(attempt: LiveAttempt) -> None:
    queue, meter = Queue(), Meter()
    first = driven(queue, meter)
    first.watch(attempt, ["GPU-a"])
    for _ in range(3):
        first.step()
    first.shipper.step()
    # What was looked at and not sent dies with the agent; the GPU's counter has gone on.
    first.step()
    later = driven(queue, meter)
    seen = later.watch(attempt, ["GPU-a"])
    later.step()
    assert later.last(seen).energy_j == 5
    assert queue.kept == [0, 1, 2, 3]


def test_lost_lease_ends_the_sending(attempt: LiveAttempt) -> None:
    queue = Queue()
    queue.held = False
    looking = driven(queue, Meter())
    looking.watch(attempt, ["GPU-a"])
    looking.step()
    looking.shipper.step()
    assert attempt.lost
    looking.step()
    looking.shipper.step()
    assert queue.asked == 1


def test_queue_that_stays_away_costs_no_more_memory(
    attempt: LiveAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "UNSENT", 3)
    queue = Queue()
    looking = driven(queue, Meter())
    seen = looking.watch(attempt, ["GPU-a"])
    for _ in range(20):
        looking.step()
    looking.last(seen)
    assert queue.kept == [0, 1, 2]


def test_use_ends_with_the_job_although_its_output_is_still_stored(
    attempt: LiveAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A machine's clock may have begun a moment ago: no time lies an hour before it.
    now = [100.0]
    monkeypatch.setattr(attempts, "seconds", lambda: now[0])
    attempt.claimed_s = 0.0
    queue, meter = Queue(), Meter()
    looking = driven(queue, meter)
    seen = looking.watch(attempt, ["GPU-a"])
    looking.step()
    looking.last_look(seen)
    attempt.end()
    # It is stored for an hour.
    now[0] += 3600
    assert looking.last(seen).gpu_seconds == 100
    assert next(meter.joules) == 2
    # Neither does a later agent count another job's use of the GPU.
    later = driven(queue, meter)
    again = later.watch(attempt_again(attempt), ["GPU-a"])
    later.step()
    assert later.last(again).gpu_seconds == 100
    assert next(meter.joules) == 3


def attempt_again(attempt: LiveAttempt) -> LiveAttempt:
    """Return an attempt as a later agent sees it."""
    return LiveAttempt(attempt.grant, attempt.folders, claimed_s=attempt.claimed_s)


def test_driver_that_hangs_does_not_hold_up_the_end(
    attempt: LiveAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "LAST_LOOK_S", 0.05)
    queue, meter = Queue(), Meter()
    looking = driven(queue, meter)
    seen = looking.watch(attempt, ["GPU-a"])
    for _ in range(3):
        looking.step()
    meter.hangs.clear()
    try:
        assert looking.last(seen).energy_j == 2
        assert queue.kept == [0, 1]
    finally:
        meter.hangs.set()
