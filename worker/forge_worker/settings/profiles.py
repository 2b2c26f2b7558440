"""Profiles: named sets of defaults for a kind of use; explicit settings take precedence."""

from collections.abc import Callable
from typing import Any

import psutil


def _half_the_cpus() -> float:
    return max(1.0, (psutil.cpu_count() or 1) / 2)


def _half_the_memory() -> int:
    return max(256, psutil.virtual_memory().total >> 21)


def _four_for_each_cpu() -> int:
    return 4 * (psutil.cpu_count() or 1)


PROFILES: dict[str, dict[str, Any]] = {
    # One job at a time, and none while the machine is otherwise busy.
    "benchmark": {
        "max_jobs": 1,
        "max_storing": 0,
        "max_cpu_percent": 30.0,
        "max_memory_percent": 50.0,
        "max_gpu_percent": 5.0,
        "cooldown_s": 15.0,
        "sample_s": 5.0,
    },
    # Many small jobs without a pause between them.
    "test": {
        "max_jobs": _four_for_each_cpu,
        "max_memory_percent": 90.0,
        "memory_reserve_mb": 512,
        "cooldown_s": 10.0,
        "sample_s": 5.0,
        "poll_s": 1.0,
    },
    # The machine is shared with a person who works on it.
    "light": {
        "cpus": _half_the_cpus,
        "memory_mb": _half_the_memory,
        "max_jobs": 2,
        "max_cpu_percent": 60.0,
        "max_memory_percent": 70.0,
        "max_gpu_percent": 20.0,
        "memory_reserve_mb": 2048,
        "disk_floor_mb": 10_240,
        "cooldown_s": 120.0,
    },
}
WORDS: dict[Callable[[], float], str] = {
    _half_the_cpus: "half of them",
    _half_the_memory: "half of it",
    _four_for_each_cpu: "4 for each CPU",
}


def defaults_of(profile: object) -> dict[str, Any]:
    """Return a profile's settings; none for an unknown profile, which is refused elsewhere."""
    chosen = PROFILES.get(profile, {}) if isinstance(profile, str) else {}
    return {name: value() if callable(value) else value for name, value in chosen.items()}
