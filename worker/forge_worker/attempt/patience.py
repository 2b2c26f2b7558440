"""Patience: retry for a while what fails because the store or the database is unreachable."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import TypeVar

import stamina
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.states import Phase
from forge_schema.storage import (
    KeyInvalid,
    ObjectMissing,
    ObjectTooLarge,
    StoreError,
    StoreUrlInvalid,
)

from forge_worker.attempt.attempt import LiveAttempt

T = TypeVar("T")

HOPELESS = (KeyInvalid, ObjectMissing, ObjectTooLarge, StoreUrlInvalid)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an attempt waits: `store_s` seconds for the store and for this machine's disk.

    It waits for the database without limit: the lease watchdog ends what runs without it, and a
    result is worth waiting for. If the attempt was asked to stop before it ended, `store_s` applies
    too.
    """

    attempt: LiveAttempt
    store_s: float

    def __call__(self, step: Callable[[], T]) -> T:
        """Run a step, retrying where that may help; return its result or raise its last error."""
        began = monotonic()

        def may_pass(error: Exception) -> bool:
            waits = not self.attempt.lost and monotonic() - began < self._limit_s(error)
            return waits and not isinstance(error, HOPELESS)

        try:
            return step()
        except Exception as error:  # noqa: BLE001 - it is raised again below
            first = error
        for tried in stamina.retry_context(
            on=may_pass, attempts=None, timeout=None, wait_initial=0.2, wait_max=5
        ):
            with tried:
                # To make ready for another try takes longer than most steps.
                if tried.num == 1:
                    raise first
                answer = step()
        return answer

    def _limit_s(self, error: Exception) -> float:
        if isinstance(error, DatabaseUnreachable):
            ended = self.attempt.phase is Phase.FINISHING
            return inf if ended or self.attempt.stop is None else self.store_s
        return self.store_s if isinstance(error, StoreError | OSError) else 0.0
