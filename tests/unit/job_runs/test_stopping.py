"""What ends a wait for a job: its own end, or that it must stop."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from forge_schema.model.states import Reason
from forge_worker.attempt import Stop
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from pathlib import Path


def rings(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def test_descriptor_can_be_read_from_once_the_attempt_must_stop(tmp_path: Path) -> None:
    attempt = attempt_of(some_grant(), tmp_path / "attempt")
    before = attempt.stopping.descriptor()
    assert not rings(before)
    attempt.request_stop(Stop(Reason.CANCELLED))
    attempt.request_stop(Stop(Reason.WORKER_LOST, lost=True))
    assert rings(before)


def test_descriptor_of_an_attempt_that_was_stopped_before_can_be_read_from(tmp_path: Path) -> None:
    attempt = attempt_of(some_grant(), tmp_path / "attempt")
    attempt.request_stop(Stop(Reason.CANCELLED))
    assert rings(attempt.stopping.descriptor())
