"""Control groups for one job in process mode. Standard library only: the shim uses it.

Under version 1 they are created below the agent's own groups, if those are writable. Under version
2 a group with limits for its children may not contain processes, so they are created beside the
agent's own, if systemd delegated that part of the tree (`Delegate=yes` with `DelegateSubgroup=`).
Elsewhere there are none; the shim polls the memory, and the job is bound to CPUs.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections import Counter
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
PERIOD_US = 100_000
SHORTEST_QUOTA_US = 1_000
PIDS = 4096
WANTED = ("cpu", "memory", "pids")
DELEGATED = ("user.delegate", "trusted.delegate")
EMPTY_PATIENCE_S = 2.0
RETRY_S = 0.01


class Confinement:
    """The groups of one job: none, one, or under version 1 one per kind of limit."""

    def __init__(self, groups: dict[str, Path]) -> None:
        # Keyed by kind of limit; under version 2 all are the same folder.
        self._groups = groups

    def __bool__(self) -> bool:
        return bool(self._groups)

    @property
    def holds_memory(self) -> bool:
        """Whether the kernel holds the job to its memory limit."""
        return "memory" in self._groups

    @property
    def entrances(self) -> list[str]:
        """The files through which a process of one thread joins the groups."""
        # Under version 1, to move the one thread moves the process, and the kernel need not
        # stop all others from forking meanwhile, for which it waits 10 to 20 ms.
        files = ((group / "tasks", group / "cgroup.procs") for group in set(self._groups.values()))
        return [str(tasks if tasks.exists() else procs) for tasks, procs in files]

    def oom_kills(self) -> int:
        """Return how many processes the kernel has killed because of the memory limit."""
        group = self._groups.get("memory")
        if group is None:
            return 0
        for table in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError, ValueError):
                pairs = (line.split() for line in (group / table).read_text().splitlines())
                return sum(int(count) for name, count in pairs if name == "oom_kill")
        return 0

    def oom_event(self) -> int | None:
        """Return a descriptor that can be read from when the kernel is about to kill for memory.

        None under version 2, where it kills the whole group, so that no process is left to end.
        """
        group = self._groups.get("memory")
        if group is None or not (group / "cgroup.event_control").exists():
            return None
        event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        control = os.open(group / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        (group / "cgroup.event_control").write_text(f"{event} {control}")
        return event

    def end(self) -> None:
        """Kill all processes in the groups, and remove the groups."""
        until = time.monotonic() + EMPTY_PATIENCE_S
        for group in set(self._groups.values()):
            while not _removed(group) and time.monotonic() < until:
                _kill_all(group)
                time.sleep(RETRY_S)


def enter(entrances: list[str]) -> None:
    """Move the calling process, which must have one thread, into groups."""
    for entrance in entrances:
        with contextlib.suppress(OSError):
            _write(entrance, "0")


def confine(
    name: str, places: Mapping[str, Path], *, cpus: float, memory_bytes: int
) -> Confinement:
    """Create the groups of a job in these `places`, as far as possible."""
    groups: dict[str, Path] = {}
    for kind, parent in places.items():
        group = parent / name
        try:
            group.mkdir(exist_ok=True)
            for file, value in _limits(kind, cpus, memory_bytes, group).items():
                _write(f"{group}/{file}", value)
        except OSError:
            _removed(group)
            continue
        groups[kind] = group
    return Confinement(groups)


def confinement_of(name: str) -> Confinement:
    """Return the existing groups of a job."""
    groups = {kind: parent / name for kind, parent in parents().items()}
    return Confinement({kind: group for kind, group in groups.items() if group.is_dir()})


def parents(own: Path = OWN, root: Path = ROOT) -> dict[str, Path]:
    """Return the folder in which groups can be created, for each kind of limit available."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return {}
    if (root / "cgroup.controllers").exists():
        return next((_unified(root / path[1:]) for _, kinds, path in lines if not kinds), {})
    paths = {kind: path for _, kinds, path in lines for kind in kinds.split(",")}
    folders = {kind: _split(root / kind, paths[kind]) for kind in WANTED if kind in paths}
    return {kind: parent for kind, parent in folders.items() if os.access(parent, os.W_OK)}


def _split(mounted: Path, path: str) -> Path:
    # In a container, the name may be the host's, which does not exist inside.
    below = mounted / path[1:]
    return below if below.is_dir() else mounted


def _unified(group: Path) -> dict[str, Path]:
    parent = group.parent
    if not any(_has(parent, mark) for mark in DELEGATED):
        return {}
    try:
        there = (parent / "cgroup.controllers").read_text().split()
        kinds = [kind for kind in WANTED if kind in there]
        (parent / "cgroup.subtree_control").write_text(" ".join(f"+{kind}" for kind in kinds))
    except OSError:
        return {}
    return dict.fromkeys(kinds, parent)


def _has(group: Path, mark: str) -> bool:
    with contextlib.suppress(OSError):
        return os.getxattr(group, mark) == b"1"
    return False


def _limits(kind: str, cpus: float, memory_bytes: int, group: Path) -> dict[str, str]:
    quota = max(SHORTEST_QUOTA_US, round(cpus * PERIOD_US))
    unified = (group / "cgroup.controllers").exists()
    match kind:
        case "cpu" if unified:
            return {"cpu.max": f"{quota} {PERIOD_US}"}
        case "cpu":
            return {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)}
        case "memory" if unified:
            return {"memory.max": str(memory_bytes), "memory.oom.group": "1"}
        case "memory":
            return {"memory.limit_in_bytes": str(memory_bytes)}
        case _:
            return {"pids.max": str(PIDS)}


def _write(file: str, value: str) -> None:
    # Jobs wait for this, and pathlib takes longer than the kernel.
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


def _kill_all(group: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


class CpuTable:
    """Assigns each job the least used CPUs."""

    def __init__(self) -> None:
        # Not every system supports CPU affinity.
        self._cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._jobs: Counter[int] = Counter()
        self._lock = Lock()

    def take(self, cpus: float) -> tuple[int, ...]:
        """Return CPUs for a job, `cpus` rounded up; none if the system has no CPU affinity."""
        with self._lock:
            by_load = sorted(self._cpus, key=lambda cpu: self._jobs[cpu])
            taken = tuple(by_load[: math.ceil(cpus)])
            self._jobs.update(taken)
        return taken

    def take_again(self, taken: tuple[int, ...]) -> None:
        """Count the CPUs of a job that an earlier agent started."""
        with self._lock:
            self._jobs.update(taken)

    def give_back(self, taken: tuple[int, ...]) -> None:
        with self._lock:
            self._jobs.subtract(taken)
