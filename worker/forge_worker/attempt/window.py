"""The window of a notice, by the machine's own clock: for the job, for the upload, for leaving."""

from dataclasses import dataclass

from forge_worker.clock import seconds

# Shares of the whole window.
RESERVE_SHARE, MOST_SHARE, MARGIN_SHARE = 0.25, 0.5, 0.1
MARGIN_S = 3.0
# An upload takes a little longer than the last one did.
LIKE_THE_LAST = 1.5


@dataclass(frozen=True, slots=True)
class Window:
    """From when the notice was heard to when the machine goes, as `clock.seconds` counts."""

    heard_s: float
    deadline_s: float

    @property
    def length_s(self) -> float:
        return max(0.0, self.deadline_s - self.heard_s)

    @property
    def give_back_s(self) -> float:
        """When a job is given back, whatever is stored of it by then."""
        return self.deadline_s - min(MARGIN_S, self.length_s * MARGIN_SHARE)

    @property
    def leave_s(self) -> float:
        """When the worker leaves, whatever still hangs."""
        return (self.give_back_s + self.deadline_s) / 2

    def kill_s(self, reserve_s: float, last_upload_s: float) -> float:
        """Return when a job that still runs is killed, so that its last checkpoint is stored.

        At least `reserve_s`, and what an upload like the last one takes, are kept for that; never
        more than half of the window.
        """
        kept = max(reserve_s, self.length_s * RESERVE_SHARE, last_upload_s * LIKE_THE_LAST)
        return self.deadline_s - min(kept, self.length_s * MOST_SHARE)


def opening(left_s: float) -> Window:
    """Return the window of a notice that is heard now."""
    now = seconds()
    return Window(now, now + max(0.0, left_s))


def earlier(one: Window | None, other: Window | None) -> Window | None:
    """Return the window that ends first."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda window: window.deadline_s)
