"""The gauge of a container: its control group where that can be read, else the engine's word."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from docker.errors import APIError

from forge_worker.runners.docker.cgroup import Counts, Group, cache_of, group_of
from forge_worker.runners.docker.engine import UNREACHABLE
from forge_worker.runners.runner import EngineUnreachable
from forge_worker.runners.use import MIB, JobUse

if TYPE_CHECKING:
    from forge_worker.runners.docker.engine import Engine


class Gauge:
    """Reads what one container uses; after its end there is nothing to read any more."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._group: Group | None = None
        self._sought = False
        self._peak = 0
        self._most_cache = 0

    def read(self) -> JobUse | None:
        """Return what the container has used so far, or None when that cannot be had now."""
        counts = self._counts()
        if counts is None:
            return None
        self._most_cache = max(self._most_cache, counts.cache)
        now = counts.memory - counts.cache
        # The kernel's own peak has the cache in it, of which no more is known than what was seen.
        self._peak = max(self._peak, now, (counts.peak or 0) - self._most_cache)
        return JobUse(counts.cpu_seconds, now / MIB, self._peak / MIB)

    def _counts(self) -> Counts | None:
        with contextlib.suppress(APIError, EngineUnreachable, *UNREACHABLE):
            if not self._sought:
                self._seek()
            return self._group.counts() if self._group else self._asked()
        return None

    def _seek(self) -> None:
        found = self._engine.client.api.inspect_container(self._name)
        if pid := found["State"]["Pid"]:
            self._group = group_of(pid, found["Id"])
            self._sought = True

    def _asked(self) -> Counts | None:
        said = self._engine.client.api.stats(self._name, stream=False, one_shot=True)
        return counts_of(said)


def counts_of(said: dict[str, Any]) -> Counts | None:
    """Return the counts in an engine's statistics; those of a container that ended are empty."""
    memory = said.get("memory_stats") or {}
    if "usage" not in memory:
        return None
    return Counts(
        cpu_seconds=said["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9,
        memory=memory["usage"],
        cache=cache_of(memory.get("stats") or {}),
        peak=memory.get("max_usage"),
    )
