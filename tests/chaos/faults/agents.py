"""A worker's agent is killed, paused, or told to leave; its clock is wrong."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.faults.fault import Fault
from chaos.options import TTL_S

if TYPE_CHECKING:
    from random import Random

FAKE_TIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


class AgentFault(Fault):
    """Strikes one worker's agent."""

    def targets(self) -> list[str]:
        return [worker.name for worker in self.bed.workers]

    def heal(self, target: str) -> None:
        self.bed.worker(target).resume()


class AgentKilled(AgentFault):
    """SIGKILL; it starts again within the lease's time or after it."""

    name = "agent killed"
    weight = 4
    lasts = (0.0, 1.6 * TTL_S)

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  nothing is left to chance
        worker = self.bed.worker(target)
        worker.leave_alone()
        worker.kill()


class AgentPaused(AgentFault):
    """SIGSTOP past the lease's time, then SIGCONT."""

    name = "agent paused"
    weight = 2
    lasts = (1.1 * TTL_S, 2.2 * TTL_S)

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  as above
        worker = self.bed.worker(target)
        worker.leave_alone()
        worker.send(signal.SIGSTOP)


class AgentTerminated(AgentFault):
    """SIGTERM, as of a service that is stopped."""

    name = "agent terminated"
    weight = 2
    lasts = (4.0, 12.0)

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  as above
        worker = self.bed.worker(target)
        worker.leave_alone()
        worker.send(signal.SIGTERM)


class ClockOff(AgentFault):
    """The agent starts again, and its clock is an hour off."""

    name = "clock off"
    lasts = (10.0, 25.0)

    def targets(self) -> list[str]:
        # What makes a clock wrong hangs a container engine's client now and then.
        return [one.name for one in self.bed.workers if one.kind != "container"] * bool(FAKE_TIME)

    def strike(self, target: str, dice: Random) -> None:
        worker = self.bed.worker(target)
        worker.kill()
        worker.also = {
            "LD_PRELOAD": str(FAKE_TIME[0]),
            "FAKETIME": dice.choice(["+3600s", "-3600s"]),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }

    def heal(self, target: str) -> None:
        worker = self.bed.worker(target)
        worker.also = {}
        worker.kill()
