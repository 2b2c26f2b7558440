"""Patience: what fails because the store or the database is away is done again, for a while."""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

import stamina
from forge_schema.database import DatabaseUnreachable
from forge_schema.storage import KeyInvalid, ObjectMissing, StoreError, StoreUrlInvalid

from forge_worker.attempt import Attempt

T = TypeVar("T")

# A result is worth waiting for: nobody takes it away while the whole database is down.
DATABASE_S = 3600.0
HOPELESS = (KeyInvalid, ObjectMissing, StoreUrlInvalid)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an attempt waits: `store_s` seconds for the store and for this machine's disk.

    For the database an hour, or as long as for the store once the attempt was asked to stop.
    """

    attempt: Attempt
    store_s: float

    def __call__(self, step: Callable[[], T]) -> T:
        """Do a step, again where that may help, and return its answer; raises its last error."""
        began = monotonic()

        def may_pass(error: Exception) -> bool:
            waits = not self.attempt.lost and monotonic() - began < self._limit_s(error)
            return waits and not isinstance(error, HOPELESS)

        for tried in stamina.retry_context(
            on=may_pass, attempts=None, timeout=DATABASE_S, wait_initial=0.2, wait_max=5
        ):
            with tried:
                answer = step()
        return answer

    def _limit_s(self, error: Exception) -> float:
        if isinstance(error, DatabaseUnreachable):
            return DATABASE_S if self.attempt.stop is None else self.store_s
        return self.store_s if isinstance(error, StoreError | OSError) else 0.0
