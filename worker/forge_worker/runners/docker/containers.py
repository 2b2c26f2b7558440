"""The containers that are in use, and those that should be gone but could not be removed."""

from __future__ import annotations

import signal
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge_worker.runners.docker.main_process import MainProcess

# Killing needs a moment: the kernel takes the memory back first.
KILL_S = 5.0


class Containers:
    """By name; from any thread. A container that is not in use may be removed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._in_use: set[str] = set()
        self._remaining: dict[str, MainProcess | None] = {}

    def use(self, name: str) -> None:
        """Note that a container of this name is about to be, or is already."""
        with self._lock:
            self._in_use.add(name)
            self._remaining.pop(name, None)

    def used(self, name: str) -> bool:
        with self._lock:
            return name in self._in_use

    def gone(self, name: str) -> None:
        """Note that a container was removed."""
        with self._lock:
            self._in_use.discard(name)
            self._remaining.pop(name, None)

    def remains(self, name: str, process: MainProcess | None) -> None:
        """Note that a container could not be removed; `process` is None where it is not known."""
        with self._lock:
            self._in_use.discard(name)
            self._remaining[name] = process

    @property
    def remaining(self) -> set[str]:
        """The containers that could not be removed."""
        with self._lock:
            return set(self._remaining)

    def may_live(self, name: str) -> bool:
        """Tell whether a container, or one that served it, may live; what can be killed is."""
        with self._lock:
            found = [
                process
                for one, process in self._remaining.items()
                if one == name or one.startswith(f"{name}-")
            ]
        return not all(process is not None and killed(process) for process in found)


def killed(process: MainProcess) -> bool:
    """Kill a container by its main process, and tell whether nothing of it lives."""
    try:
        process.signal(signal.SIGKILL)
    except PermissionError:
        return process.ended()
    return process.ended(KILL_S)
