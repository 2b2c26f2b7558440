"""The machine's clock and boot id; and on it, the time between a preemption notice and the end."""

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# Shares of the whole window.
RESERVE_SHARE, MOST_SHARE, MARGIN_SHARE = 0.25, 0.5, 0.1
MARGIN_S = 3.0
# Allow an upload somewhat more time than the last one took.
LIKE_THE_LAST = 1.5


def seconds() -> float:
    """Return the seconds since the machine started, including time suspended."""
    return time.clock_gettime(CLOCK)


@cache
def this_boot() -> str:
    """Return the id of the machine's current boot, which changes at a restart; "" if unknown."""
    with suppress(OSError):
        return BOOT.read_text(encoding="ascii").strip()
    return ""


@dataclass(frozen=True, slots=True)
class Window:
    """From the arrival of the notice to the machine's end, in seconds of `clock.seconds`."""

    heard_s: float
    deadline_s: float

    @property
    def length_s(self) -> float:
        return max(0.0, self.deadline_s - self.heard_s)

    @property
    def give_back_s(self) -> float:
        """When a job is given back, whether or not its checkpoint is stored."""
        return self.deadline_s - min(MARGIN_S, self.length_s * MARGIN_SHARE)

    @property
    def leave_s(self) -> float:
        """When the worker leaves, whatever is still pending."""
        return (self.give_back_s + self.deadline_s) / 2

    def kill_s(self, reserve_s: float, last_upload_s: float) -> float:
        """Return when a job that still runs is killed, so that its last checkpoint can be stored.

        That leaves at least `reserve_s` and enough for an upload like the last one, but at most
        half of the window.
        """
        kept = max(reserve_s, self.length_s * RESERVE_SHARE, last_upload_s * LIKE_THE_LAST)
        return self.deadline_s - min(kept, self.length_s * MOST_SHARE)


def opening(left_s: float) -> Window:
    """Return the window of a notice that arrives now."""
    now = seconds()
    return Window(now, now + max(0.0, left_s))


def earlier(window: Window | None, other: Window | None) -> Window | None:
    """Return the window that ends first."""
    if window is None or other is None:
        return window or other
    return min(window, other, key=lambda each: each.deadline_s)
