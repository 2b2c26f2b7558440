"""A limit on wrong secrets, which nobody can use to keep the holder of the right one out."""

from collections import OrderedDict
from http import HTTPStatus
from threading import Lock
from time import monotonic

from forge_functions.errors import Refused

LIMIT = 10
WINDOW_S = 60.0
REMEMBERED = 10_000


class Failures:
    """Counts in this process; several servers each allow as many.

    It counts by the id that is tried and the address that tries, and is asked only about secrets
    that were wrong: others behind the same address may hold the right one.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        # By id and address: how many, and since when.
        self._counted: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def check(self, said: str) -> None:
        """Let a caller pass who has not failed too often.

        Raises:
            Refused: 429, with the seconds after which to try again.
        """
        with self._lock:
            count, since = self._counted.get(said, (0, 0.0))
        left = WINDOW_S - (monotonic() - since)
        if count >= LIMIT and left > 0:
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too_many_failures",
                "too many wrong secrets came for this id",
                hint="wait, and check the token",
                headers={"Retry-After": str(int(left) + 1)},
            )

    def count(self, said: str) -> None:
        """Count a wrong secret."""
        with self._lock:
            count, since = self._counted.pop(said, (0, 0.0))
            now = monotonic()
            fresh = now - since > WINDOW_S
            self._counted[said] = (1, now) if fresh else (count + 1, since)
            if len(self._counted) > REMEMBERED:
                self._counted.popitem(last=False)
