"""A whole host dies or pauses: the agent and all its jobs."""

from __future__ import annotations

import shutil
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
from chaos.faults.agents import AgentFault
from chaos.options import TTL_S

if TYPE_CHECKING:
    from random import Random

    from chaos.parts.fleet import Worker
    from support.engine.own_engine import OwnEngine


class HostKilled(AgentFault):
    """All processes of a worker die at once; half of the hosts return with an empty disk."""

    name = "host killed"
    weight = 3
    lasts = (0.0, 2 * TTL_S)

    def strike(self, target: str, dice: Random) -> None:
        worker = self.bed.worker(target)
        worker.leave_alone()
        emptied = dice.random() < 0.5 and worker.place is not None
        self._end_all(worker, emptied=emptied)
        if emptied and worker.place is not None:
            for path in worker.place.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()

    def _end_all(self, worker: Worker, *, emptied: bool) -> None:
        # Stop it first, so that it cannot start anything meanwhile.
        worker.send(signal.SIGSTOP)
        family = worker.family()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        worker.kill()
        psutil.wait_procs(family, 5)
        if worker.kind == "container":
            self._end_containers(worker, emptied=emptied)

    def _end_containers(self, worker: Worker, *, emptied: bool) -> None:
        engine = self.bed.engine_of(worker)
        wanted = [word for label in worker.labels for word in ("--filter", f"label={label}")]
        # An empty disk has no containers either, and nothing would remove those of the old folder.
        verb = ("rm", "-f") if emptied else ("kill",)
        for name in _named(engine, wanted):
            engine.docker(*verb, name)
        if emptied and _named(engine, wanted):
            raise RuntimeError(f"containers of {worker.name} are left")


def _named(engine: OwnEngine, filters: list[str]) -> list[str]:
    """Return some of an engine's containers; raises if it does not answer."""
    found = engine.docker("ps", "-qa", *filters)
    found.check_returncode()
    return found.stdout.split()


class HostPaused(AgentFault):
    """The whole host pauses until after its leases expire, as spot hosts do."""

    name = "host paused"
    lasts = (1.1 * TTL_S, 2.2 * TTL_S)

    def targets(self) -> list[str]:
        return [one.name for one in self.bed.workers if one.kind != "container"]

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  nothing is left to chance
        worker = self.bed.worker(target)
        worker.leave_alone()
        worker.send(signal.SIGSTOP)
        for process in worker.family():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def heal(self, target: str) -> None:
        worker = self.bed.worker(target)
        for process in reversed(worker.family()):
            with suppress(psutil.NoSuchProcess):
                process.resume()
        worker.resume()
