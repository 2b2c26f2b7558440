"""How often a shim looks at its job's memory. Standard library only: the shim uses it."""

from __future__ import annotations

# Usually, and above half of the limit or when something has happened.
CALM_S, ALERT_S = 0.5, 0.1
# If the kernel holds the job to its limit, pauses double up to this while the memory stays the
# same: while it changes by less than this share of the limit.
QUIET_S, SHARE = 5.0, 1 / 64


class Pace:
    """The pauses between two looks; `held` says that the kernel holds the job to its limit."""

    def __init__(self, limit: int, *, held: bool) -> None:
        self._limit = limit
        self._held = held
        self._used = 0
        self._pause_s = ALERT_S

    def hasten(self) -> float:
        """Return the seconds until the next look when something has happened."""
        self._pause_s = ALERT_S
        return ALERT_S

    def next(self, used: int) -> float:
        """Return the seconds until the next look after one that found this many bytes in use."""
        before, self._used = self._used, used
        if not self._held:
            return ALERT_S if used > self._limit / 2 else CALM_S
        same = abs(used - before) < SHARE * self._limit
        self._pause_s = min(QUIET_S, 2 * self._pause_s) if same else CALM_S
        return self._pause_s
