"""The machine's own clock and run, by which an agent goes on counting what an earlier one began."""

import time
from contextlib import suppress
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def seconds() -> float:
    """Return the seconds since the machine started, those that it slept included."""
    return time.clock_gettime(CLOCK)


def this_boot() -> str:
    """Return the name of the machine's run, which changes when it restarts; "" if it has none."""
    with suppress(OSError):
        return BOOT.read_text(encoding="ascii").strip()
    return ""
