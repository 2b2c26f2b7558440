"""Which of an attempt's phases the queue hears of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.states import Phase, Standing
from forge_worker.job_runs import parts
from forge_worker.job_runs.parts import PhaseReporter
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from pathlib import Path

    from forge_worker.queue.gateway import Gateway
    from support.waiting import Eventually

GPUS = ("GPU-1",)


def reporter(root: Path, told: list[Phase], devices: tuple[str, ...] = ()) -> PhaseReporter:
    def report(_fence: object, phase: Phase, **_: object) -> Standing:
        told.append(phase)
        return Standing.OK

    attempt = attempt_of(some_grant(), root)
    return PhaseReporter(attempt, cast("Gateway", SimpleNamespace(report=report)), devices)


@pytest.mark.parametrize(
    ("lasts_s", "devices", "told"),
    [
        (60.0, (), [Phase.RUNNING]),
        (60.0, GPUS, [Phase.PREPARING, Phase.RUNNING]),
        (0.0, (), [Phase.PREPARING, Phase.RUNNING, Phase.FINISHING]),
    ],
    ids=["short", "short with a GPU", "long"],
)
def test_short_preparations_and_endings_are_not_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lasts_s: float,
    devices: tuple[str, ...],
    told: list[Phase],
) -> None:
    monkeypatch.setattr(parts, "BRIEF_S", lasts_s)
    heard: list[Phase] = []
    made = reporter(tmp_path, heard, devices)
    for phase in (Phase.PREPARING, Phase.RUNNING, Phase.FINISHING):
        made.enter(phase)
        made.step()
    assert heard == told


def test_phase_that_lasts_is_reported_without_another_call(
    tmp_path: Path, eventually: Eventually
) -> None:
    heard: list[Phase] = []
    made = reporter(tmp_path, heard)
    made.share()
    made.enter(Phase.PREPARING)
    eventually(lambda: heard == [Phase.PREPARING])
    made.enter(Phase.RUNNING)
    made.enter(Phase.FINISHING)
    eventually(lambda: heard == [Phase.PREPARING, Phase.RUNNING, Phase.FINISHING])
    made.end(60)


def test_adoption_is_told_once_with_the_first_phase_that_is_answered(tmp_path: Path) -> None:
    told: list[object] = []
    answers: list[Exception | Standing] = [DatabaseUnreachable("away"), Standing.OK, Standing.OK]

    def report(*_: object, adopted: bool, **__: object) -> Standing:
        told.append(adopted)
        answer = answers[len(told) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    attempt = attempt_of(some_grant(), tmp_path)
    attempt.adopted = True
    made = PhaseReporter(attempt, cast("Gateway", SimpleNamespace(report=report)), GPUS)
    made.enter(Phase.RUNNING)
    with pytest.raises(DatabaseUnreachable):
        made.step()
    made.step()
    made.enter(Phase.STOPPING)
    made.step()
    assert told == [True, True, False]


def test_a_phase_is_told_at_once_if_the_database_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Phase] = []
    made = reporter(tmp_path, heard)
    made.tell(Phase.FINISHING)
    assert heard == [Phase.FINISHING]

    def fail(_phase: Phase) -> None:
        raise DatabaseUnreachable("away")

    monkeypatch.setattr(made, "_tell", fail)
    made.tell(Phase.FINISHING)
    assert heard == [Phase.FINISHING]
