"""A limit on wrong secrets that cannot be used to lock out the holder of the right one."""

from collections import OrderedDict
from http import HTTPStatus
from threading import Lock
from time import monotonic

from forge_functions.errors import Refused

LIMIT = 10
WINDOW_S = 60.0
REMEMBERED = 10_000


class Failures:
    """Counts wrong secrets in this process, by the id tried and the client's address.

    Each server counts separately. A right secret is never checked against the limit, since
    others behind the same address may have it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        # By id and address: the count and its start.
        self._counted: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def check(self, who: str) -> None:
        """Check that a caller has not failed too often.

        Raises:
            Refused: 429, with the seconds to wait before trying again.
        """
        with self._lock:
            count, since = self._counted.get(who, (0, 0.0))
        left = WINDOW_S - (monotonic() - since)
        if count >= LIMIT and left > 0:
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too_many_failures",
                "too many wrong secrets were sent for this id",
                hint="wait, and check the token",
                headers={"Retry-After": str(int(left) + 1)},
            )

    def count(self, who: str) -> None:
        """Count a wrong secret."""
        with self._lock:
            count, since = self._counted.pop(who, (0, 0.0))
            now = monotonic()
            fresh = now - since > WINDOW_S
            self._counted[who] = (1, now) if fresh else (count + 1, since)
            if len(self._counted) > REMEMBERED:
                self._counted.popitem(last=False)
