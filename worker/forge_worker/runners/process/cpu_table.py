"""Which CPUs each job runs on, where no control group can limit its share of all of them."""

from __future__ import annotations

import math
import os
from collections import Counter
from threading import Lock


class CpuTable:
    """Gives each job the CPUs that the fewest others have."""

    def __init__(self) -> None:
        # Not every system can bind a process to some of its CPUs.
        self._cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._jobs: Counter[int] = Counter()
        self._lock = Lock()

    def take(self, cpus: float) -> tuple[int, ...]:
        """Return as many CPUs as hold `cpus`; none where a job cannot be bound to them."""
        with self._lock:
            by_load = sorted(self._cpus, key=lambda cpu: self._jobs[cpu])
            taken = tuple(by_load[: math.ceil(cpus)])
            self._jobs.update(taken)
        return taken

    def give_back(self, taken: tuple[int, ...]) -> None:
        with self._lock:
            self._jobs.subtract(taken)
