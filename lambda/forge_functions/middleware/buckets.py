"""Token buckets: what each of many may use in the long run, and at once."""

from collections import OrderedDict
from collections.abc import Callable
from math import inf
from time import monotonic

REMEMBERED = 10_000


class Buckets:
    """A bucket of tokens for each caller, full at first.

    Args:
        per_s: tokens that come back to each in a second.
        at_once: how many a bucket holds.
        patience_s: how long a caller may be made to wait.
    """

    def __init__(
        self,
        per_s: float,
        at_once: float,
        patience_s: float = 0.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._per_s, self._at_once = per_s, at_once
        self._patience_s, self._clock = patience_s, clock
        # By caller: its tokens, fewer than none if it owes some, and when that was so.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str, cost: float = 1.0) -> float:
        """Take what something costs, if a token is there or will be in time.

        Returns:
            Seconds until that token is there. If that is more than the patience, nothing was taken.
        """
        left, wait_s = self._now(who), self.wait(who)
        self._keep(who, left - cost if wait_s <= self._patience_s else left)
        return wait_s

    def wait(self, who: str) -> float:
        """Return the seconds until a token is there, without taking it."""
        return max(0.0, (1 - self._now(who)) / self._per_s)

    def owe(self, who: str, tokens: float = 1.0) -> None:
        """Take tokens for something that has happened."""
        self._keep(who, self._now(who) - tokens)

    def give_back(self, who: str, tokens: float = 1.0) -> None:
        """Undo what was taken for something that should not have counted."""
        self._keep(who, min(self._at_once, self._now(who) + tokens))

    def _now(self, who: str) -> float:
        left, since = self._left.get(who, (self._at_once, -inf))
        grown = inf if since == -inf else (self._clock() - since) * self._per_s
        return min(self._at_once, left + grown)

    def _keep(self, who: str, left: float) -> None:
        self._left.pop(who, None)
        self._left[who] = left, self._clock()
        if len(self._left) > REMEMBERED:
            self._left.popitem(last=False)
