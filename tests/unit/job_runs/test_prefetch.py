"""When a worker looks at its next job, and when it leaves that alone again."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from forge_schema.model.states import Phase
from forge_worker.attempt import LiveAttempt, Stopped
from forge_worker.attempt_folders import DiskFull
from forge_worker.job_runs import preparation
from forge_worker.job_runs.preparation import Prefetch
from forge_worker.job_runs.services import JobServices
from forge_worker.runners.choice import Runners
from forge_worker.transfers import TRANSFERS
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from forge_schema.model.lease import Grant
    from forge_worker.job_runs.preparation import Ahead


class Machine:
    """A worker with one running job and one job that waits for it, whose preparation is a hook."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running = attempt_of(some_grant(), root / "jobs" / "1")
        self.running.phase = Phase.RUNNING
        grant = self.running.grant
        self.next = replace(grant, job_id=grant.job_id + 1, token=0, parts=[None, None, 7])
        self.warm: list[int] = []
        self.closed = self.prepares = False
        self.looks = self.prepared = 0
        self.during: Callable[[Ahead], None] = lambda _: None
        services = SimpleNamespace(
            gateway=SimpleNamespace(next_job=self._look),
            warm=SimpleNamespace(newest=lambda: self.warm),
            objects=lambda _: None,
            provisions=(),
            host=None,
        )
        monkeypatch.setattr(preparation, "unpack", lambda attempt, *_: self.during(attempt))
        monkeypatch.setattr(preparation, "run_spec", lambda *_: None)
        monkeypatch.setattr(preparation, "note_warm", lambda *_: None)
        monkeypatch.setattr(preparation, "CHECK_S", 0.0)
        # Of the machine that runs the tests: its disk may be full, and other threads transfer.
        self.free = 1 << 50
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=self.free))
        monkeypatch.setattr(TRANSFERS, "_callers", Counter())
        self.attempts = [self.running]
        self.loop = Prefetch(
            root / "ahead",
            cast("Runners", SimpleNamespace(of=self._prepared)),
            lambda: cast("JobServices", services),
            attempts=lambda: self.attempts,
            closed=lambda: self.closed,
            period_s=1,
        )
        self.folder = root / "ahead"

    def _look(self, past: Collection[int] = ()) -> Grant:
        self.looks += 1
        waiting = (self.next, replace(self.next, job_id=self.next.job_id + 1))
        return next(one for one in waiting if one.job_id not in past)

    def _prepared(self, _: Any) -> None:  # noqa: ANN401  a spec
        self.prepared += 1
        if not self.prepares:
            raise DiskFull("the rest is not tested here")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_job_is_prepared_once(machine: Machine) -> None:
    machine.prepares = True
    for _ in range(3):
        machine.loop.step()
    assert (machine.looks, machine.prepared) == (3, 1)
    assert list(machine.folder.iterdir()) == []


def test_one_that_cannot_be_prepared_does_not_hold_up_the_next(machine: Machine) -> None:
    machine.loop.step()
    machine.prepares = True
    for _ in range(2):
        machine.loop.step()
    assert machine.prepared == 2


def test_what_is_here_already_is_not_prepared(machine: Machine) -> None:
    machine.warm = [7]
    machine.loop.step()
    assert (machine.looks, machine.prepared) == (1, 0)


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.FINISHING])
def test_the_queue_is_not_asked_unless_all_jobs_compute(machine: Machine, phase: Phase) -> None:
    machine.running.phase = phase
    machine.loop.step()
    machine.attempts = []
    machine.loop.step()
    assert machine.looks == 0


def _prepares_another(machine: Machine) -> None:
    machine.running.phase = Phase.PREPARING


def _transfers(_: Machine) -> None:
    TRANSFERS._callers[0] += 1


def _leaves(machine: Machine) -> None:
    machine.closed = True


def _fills(machine: Machine) -> None:
    machine.free = (2 * machine.next.spec["resources"]["disk_mb"] << 20) - 1


@pytest.mark.parametrize("happens", [_prepares_another, _transfers, _leaves, _fills])
def test_it_stops_when_a_job_needs_the_network_or_the_disk(
    machine: Machine, happens: Callable[[Machine], None]
) -> None:
    stopped = []

    def during(attempt: Ahead) -> None:
        happens(machine)
        with pytest.raises(Stopped) as caught:
            attempt.while_wanted()
        stopped.append(caught)
        raise caught.value

    machine.during = during
    machine.loop.step()
    assert (len(stopped), machine.prepared) == (1, 0)
    # It is tried again later.
    machine.running.phase, machine.closed, machine.free = Phase.RUNNING, False, 1 << 50
    TRANSFERS._callers.clear()
    machine.during = lambda _: None
    machine.loop.step()
    assert machine.prepared == 1


def test_the_same_job_started_here_waits_for_what_is_under_way(machine: Machine) -> None:
    def during(attempt: Ahead) -> None:
        claimed = LiveAttempt(machine.next, machine.running.folders)
        machine.attempts = [claimed]
        attempt.while_wanted()

    machine.during = during
    machine.loop.step()
    assert machine.prepared == 1
