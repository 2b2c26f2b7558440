"""A container's control group: what the kernel has counted for all of its processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Counts:
    """CPU-seconds and bytes: memory in use, of that the cache of files, the most there was.

    `peak` has the cache in it, and is None where the kernel does not keep it.
    """

    cpu_seconds: float
    memory: int
    cache: int
    peak: int | None


@dataclass(frozen=True)
class Group:
    """The folders of one control group; both are the same in version 2."""

    cpu: Path
    memory: Path
    unified: bool

    def counts(self) -> Counts | None:
        """Return what was counted, or None when the group is gone."""
        try:
            return self._unified() if self.unified else self._split()
        except (OSError, ValueError, KeyError):
            return None

    def _unified(self) -> Counts:
        peak = self.memory / "memory.peak"
        return Counts(
            cpu_seconds=_table(self.cpu / "cpu.stat")["usage_usec"] / 1e6,
            memory=_number(self.memory / "memory.current"),
            cache=cache_of(_table(self.memory / "memory.stat")),
            peak=_number(peak) if peak.exists() else None,
        )

    def _split(self) -> Counts:
        return Counts(
            cpu_seconds=_number(self.cpu / "cpuacct.usage") / 1e9,
            memory=_number(self.memory / "memory.usage_in_bytes"),
            cache=cache_of(_table(self.memory / "memory.stat")),
            peak=_number(self.memory / "memory.max_usage_in_bytes"),
        )


def group_of(pid: int, container: str, proc: Path = PROC, root: Path = ROOT) -> Group | None:
    """Return the control group of a container by one of its processes.

    None where it cannot be seen from here: the agent may have process ids of its own, and another
    process may then go by this one; so the container's id must be in the group's name.
    """
    named = _named(pid, proc)
    if not named or not _of_container(named, container):
        return None
    places = {kind: (kinds, path) for _, kinds, path in named for kind in kinds.split(",")}
    if "cpuacct" in places and "memory" in places:
        cpu, memory = (
            root / places[kind][0] / places[kind][1][1:] for kind in ("cpuacct", "memory")
        )
        return _there(Group(cpu, memory, unified=False))
    path = root / places[""][1][1:] if "" in places else None
    return None if path is None else _there(Group(path, path, unified=True))


def names_container(pid: int, container: str, proc: Path = PROC) -> bool:
    """Tell whether a process is in a control group that has a container's id in its name."""
    named = _named(pid, proc)
    return bool(named) and _of_container(named, container)


def _named(pid: int, proc: Path) -> list[list[str]]:
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return []
    return [line.split(":", 2) for line in lines]


def _of_container(named: list[list[str]], container: str) -> bool:
    return all(container in path for _, kinds, path in named if kinds in ("", "memory"))


def cache_of(stat: dict[str, int]) -> int:
    """Return the bytes of the cache of files in a table of memory; either version's."""
    return sum(
        stat.get(f"total_{name}", stat.get(name, 0)) for name in ("active_file", "inactive_file")
    )


def _there(group: Group) -> Group | None:
    return group if group.counts() is not None else None


def _number(file: Path) -> int:
    return int(file.read_text())


def _table(file: Path) -> dict[str, int]:
    pairs = (line.split() for line in file.read_text().splitlines())
    return {name: int(value) for name, value in pairs}
