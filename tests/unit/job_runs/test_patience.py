"""Which errors are retried, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.storage import KeyInvalid, ObjectMissing, StoreUnreachable
from forge_worker.attempt import LiveAttempt, Stopped
from forge_worker.job_runs.parts import Patience
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def attempt(tmp_path: Path) -> LiveAttempt:
    return attempt_of(some_grant(), tmp_path / "attempt")


class Failing:
    """A step that fails a number of times with the same error, and then works."""

    def __init__(self, error: Exception, times: int = 1) -> None:
        self.error, self.left, self.calls = error, times, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error
        return "done"


@pytest.mark.parametrize(
    "error", [StoreUnreachable("x"), DatabaseUnreachable("x"), OSError(28, "full")]
)
def test_what_may_pass_is_tried_again(attempt: LiveAttempt, error: Exception) -> None:
    step = Failing(error)
    assert Patience(attempt, 60)(step) == "done"
    assert step.calls == 2


@pytest.mark.parametrize(
    "error", [ObjectMissing("x"), KeyInvalid("x"), Stopped(), ValueError("x"), RuntimeError("x")]
)
def test_what_cannot_pass_is_not(attempt: LiveAttempt, error: Exception) -> None:
    step = Failing(error)
    with pytest.raises(type(error)):
        Patience(attempt, 60)(step)
    assert step.calls == 1


def test_patience_with_the_store_ends(attempt: LiveAttempt) -> None:
    step = Failing(StoreUnreachable("x"), times=100)
    with pytest.raises(StoreUnreachable):
        Patience(attempt, 0.1)(step)
    assert 1 <= step.calls < 5


@pytest.mark.parametrize("error", [StoreUnreachable("x"), DatabaseUnreachable("x")])
def test_nothing_is_tried_for_a_lost_lease(attempt: LiveAttempt, error: Exception) -> None:
    attempt.lose()
    step = Failing(error)
    with pytest.raises(type(error)):
        Patience(attempt, 60)(step)
    assert step.calls == 1
