"""How the time of a notice is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Reason
from forge_worker.attempt import LiveAttempt, Stop
from forge_worker.clock import Window
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("length_s", "reserve_s", "last_s", "job_s"),
    [
        (120, 10, 0, 90),
        (30, 10, 0, 20),
        (120, 50, 0, 70),
        # An upload like the last one must fit, but the job has half of the time.
        (120, 10, 30, 75),
        (120, 10, 300, 60),
        (8, 10, 0, 4),
        (0, 10, 0, 0),
    ],
)
def test_a_job_has_the_notice_less_what_the_upload_needs(
    length_s: float, reserve_s: float, last_s: float, job_s: float
) -> None:
    window = Window(1000, 1000 + length_s)
    assert window.kill_s(reserve_s, last_s) == 1000 + job_s
    assert window.kill_s(reserve_s, last_s) <= window.give_back_s
    assert window.give_back_s <= window.leave_s <= window.deadline_s
    if length_s:
        assert window.give_back_s < window.leave_s < window.deadline_s


def test_of_two_notices_the_earlier_deadline_wins_and_the_first_reason(tmp_path: Path) -> None:
    attempt: LiveAttempt = attempt_of(some_grant(), tmp_path / "attempt")
    for reason, deadline_s in (
        (Reason.CANCELLED, None),
        (Reason.PREEMPTED, 120),
        (Reason.PREEMPTED, 30),
    ):
        window = None if deadline_s is None else Window(0, deadline_s)
        attempt.request_stop(Stop(reason, window=window))
    attempt.request_stop(Stop(Reason.PREEMPTED, window=Window(0, 60)))
    assert attempt.stop == Stop(Reason.CANCELLED)
    assert attempt.window == Window(0, 30)
