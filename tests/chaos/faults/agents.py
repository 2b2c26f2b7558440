"""A worker's agent is killed, paused, or told to exit; its clock is wrong."""

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
    """Hits one worker's agent."""

    def targets(self) -> list[str]:
        return [worker.name for worker in self.bed.workers]

    def heal(self, target: str) -> None:
        self.bed.worker(target).resume()


class AgentKilled(AgentFault):
    """SIGKILL; it restarts before or after its leases expire."""

    name = "agent killed"
    weight = 4
    lasts = (0.0, 1.6 * TTL_S)

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  nothing is left to chance
        worker = self.bed.worker(target)
        worker.leave_alone()
        worker.kill()


class AgentPaused(AgentFault):
    """SIGSTOP until after the leases expire, then SIGCONT."""

    name = "agent paused"
    weight = 2
    lasts = (1.1 * TTL_S, 2.2 * TTL_S)

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  as above
        worker = self.bed.worker(target)
        worker.leave_alone()
        worker.send(signal.SIGSTOP)


class AgentTerminated(AgentFault):
    """SIGTERM, as when a service is stopped."""

    name = "agent terminated"
    weight = 2
    lasts = (4.0, 12.0)

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  as above
        worker = self.bed.worker(target)
        worker.leave_alone()
        worker.send(signal.SIGTERM)


class ClockOff(AgentFault):
    """The agent restarts with a clock that is an hour off."""

    name = "clock off"
    lasts = (10.0, 25.0)

    def targets(self) -> list[str]:
        # The library that fakes the clock sometimes hangs a container engine's client.
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
