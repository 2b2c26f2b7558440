"""The machine's clock and boot id, with which an agent continues the timings of an earlier one."""

import time
from contextlib import suppress
from functools import cache
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def seconds() -> float:
    """Return the seconds since the machine started, including time suspended."""
    return time.clock_gettime(CLOCK)


@cache
def this_boot() -> str:
    """Return the id of the machine's current boot, which changes at a restart; "" if unknown."""
    with suppress(OSError):
        return BOOT.read_text(encoding="ascii").strip()
    return ""
