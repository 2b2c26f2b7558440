"""Resource usage of a container, from its control group or else the engine's statistics."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker.errors import APIError

from forge_worker.runners.docker.engine import UNREACHABLE
from forge_worker.runners.process.descendants import MIB, JobUse
from forge_worker.runners.runner import EngineUnreachable

if TYPE_CHECKING:
    from forge_worker.runners.docker.engine import Engine

PROC = Path("/proc")
ROOT = Path("/sys/fs/cgroup")
CACHE = ("active_file", "inactive_file")
# In version 1, those with the control groups below.
ALL_CACHE = (*CACHE, *(f"total_{name}" for name in CACHE))


@dataclass(frozen=True)
class Counts:
    """CPU-seconds, and bytes of memory in use, of its page cache, and of the peak.

    `peak` includes the page cache, and is None if the kernel does not record it.
    """

    cpu_seconds: float
    memory: int
    cache: int
    peak: int | None


@dataclass(frozen=True)
class ControlGroup:
    """The folders of one control group, which are the same in version 2."""

    cpu: Path
    memory: Path
    unified: bool

    def counts(self) -> Counts | None:
        """Return the current counts, or None if the group is gone."""
        try:
            return self._unified() if self.unified else self._split()
        except (OSError, ValueError, KeyError):
            return None

    def _unified(self) -> Counts:
        peak = self.memory / "memory.peak"
        return Counts(
            cpu_seconds=_table(self.cpu / "cpu.stat", "usage_usec")["usage_usec"] / 1e6,
            memory=_number(self.memory / "memory.current"),
            cache=cache_of(_table(self.memory / "memory.stat", *ALL_CACHE)),
            peak=_number(peak) if peak.exists() else None,
        )

    def _split(self) -> Counts:
        return Counts(
            cpu_seconds=_number(self.cpu / "cpuacct.usage") / 1e9,
            memory=_number(self.memory / "memory.usage_in_bytes"),
            cache=cache_of(_table(self.memory / "memory.stat", *ALL_CACHE)),
            peak=_number(self.memory / "memory.max_usage_in_bytes"),
        )


def group_of(pid: int, container: str, proc: Path = PROC, root: Path = ROOT) -> ControlGroup | None:
    """Return the control group of a container, given one of its processes.

    None if it is not visible: in its own PID namespace, the agent may find another process with
    this id, so the group's name must contain the container's id.
    """
    named = _named(pid, proc)
    if not named or not _of_container(named, container):
        return None
    places = {kind: (kinds, path) for _, kinds, path in named for kind in kinds.split(",")}
    if "cpuacct" in places and "memory" in places:
        cpu, memory = (
            root / places[kind][0] / places[kind][1][1:] for kind in ("cpuacct", "memory")
        )
        return _there(ControlGroup(cpu, memory, unified=False))
    path = root / places[""][1][1:] if "" in places else None
    return None if path is None else _there(ControlGroup(path, path, unified=True))


def names_container(pid: int, container: str, proc: Path = PROC) -> bool:
    """Return whether a process is in a control group named after a container's id."""
    named = _named(pid, proc)
    return bool(named) and _of_container(named, container)


def _named(pid: int, proc: Path) -> list[list[str]]:
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return []
    return [line.split(":", 2) for line in lines]


def _of_container(named: list[list[str]], container: str) -> bool:
    """Return whether these are groups of a container.

    Where version 1 limits memory, crun leaves the process in the root of version 2.
    """
    places = {kinds: path for _, kinds, path in named}
    return container in (places.get("memory") or places.get("", ""))


def cache_of(stat: dict[str, int]) -> int:
    """Return the page cache in bytes from memory statistics of either version."""
    return sum(stat.get(f"total_{name}", stat.get(name, 0)) for name in CACHE)


def _there(group: ControlGroup) -> ControlGroup | None:
    return group if group.counts() is not None else None


def _number(file: Path) -> int:
    return int(file.read_text())


def _table(file: Path, *names: str) -> dict[str, int]:
    """Return the numbers with these names in a table; the others cost time, once a second."""
    values = {}
    for line in file.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name in names:
            values[name] = int(value)
    return values


class Gauge:
    """Measures the usage of one container while it runs."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._group: ControlGroup | None = None
        self._sought = False
        self._peak = 0
        self._most_cache = 0

    def measure(self, pid: int, container: str) -> None:
        """Measure the container with this id, which has the process `pid`."""
        self._group = group_of(pid, container)
        self._sought = True

    def read(self) -> JobUse | None:
        """Return what the container has used so far, or None if that is unknown now."""
        counts = self._counts()
        if counts is None:
            return None
        self._most_cache = max(self._most_cache, counts.cache)
        now = counts.memory - counts.cache
        # The kernel's peak includes the page cache, so the largest cache seen is subtracted.
        self._peak = max(self._peak, now, (counts.peak or 0) - self._most_cache)
        return JobUse(counts.cpu_seconds, now / MIB, self._peak / MIB)

    def _counts(self) -> Counts | None:
        with contextlib.suppress(APIError, EngineUnreachable, *UNREACHABLE):
            if not self._sought:
                container = self._engine.client.api.inspect_container(self._name)
                if pid := container["State"]["Pid"]:
                    self.measure(pid, container["Id"])
            return self._group.counts() if self._group else self._asked()
        return None

    def _asked(self) -> Counts | None:
        stats = self._engine.client.api.stats(self._name, stream=False, one_shot=True)
        return counts_of(stats)


def counts_of(stats: dict[str, Any]) -> Counts | None:
    """Return the counts in an engine's statistics, which are empty after the container's end."""
    memory = stats.get("memory_stats") or {}
    if "usage" not in memory:
        return None
    return Counts(
        cpu_seconds=stats["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9,
        memory=memory["usage"],
        cache=cache_of(memory.get("stats") or {}),
        peak=memory.get("max_usage"),
    )
