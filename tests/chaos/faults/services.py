"""A server, a sweeper or the container engine is killed and restarted, or a server replaced."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from chaos.faults.fault import Fault
from chaos.options import TTL_S
from chaos.parts.fleet import LEAVE_S

if TYPE_CHECKING:
    from random import Random


class ServiceKilled(Fault):
    """SIGKILL to a forge-server or a forge-sweeper, at any point."""

    name = "service killed"
    weight = 2
    lasts = (0.0, 6.0)

    def targets(self) -> list[str]:
        return [one.name for one in (*self.bed.servers, *self.bed.sweepers)]

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  nothing is left to chance
        member = self.bed.member(target)
        member.leave_alone()
        member.kill()

    def heal(self, target: str) -> None:
        self.bed.member(target).resume()


class ServerReplaced(Fault):
    """A server leaves, and one of the other version takes its place: an upgrade, or a way back."""

    name = "server replaced"
    every_s = 60.0

    def targets(self) -> list[str]:
        return [one.name for one in self.bed.servers] if self.bed.proxy else []

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  nothing is left to chance
        server = self.bed.member(target)
        server.leave_alone()
        server.send(signal.SIGTERM)
        if server.ended(LEAVE_S) is None:
            raise RuntimeError(f"{target} does not leave")
        if self.bed.old is not None:
            server.also = {} if server.also else self.bed.old.environment

    def heal(self, target: str) -> None:
        self.bed.member(target).resume()


class EngineKilled(Fault):
    """The container engine crashes; its containers keep running."""

    name = "engine killed"
    lasts = (0.5, 6.0)

    def targets(self) -> list[str]:
        return list(self.bed.struck_engines)

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  as above
        self.bed.struck_engines[target].kill()

    def heal(self, target: str) -> None:
        engine = self.bed.struck_engines[target]
        engine.kill()
        engine.start()


class EngineStopped(EngineKilled):
    """The container engine is stopped in order, and is away until its jobs' leases may have ended.

    When it returns, it may have the other setting of live-restore: its containers then outlive its
    next stop, or end with it.
    """

    name = "engine stopped"
    lasts = (2.0, 2.2 * TTL_S)

    def strike(self, target: str, dice: Random) -> None:
        engine = self.bed.struck_engines[target]
        engine.stop()
        engine.live_restore = dice.random() < 0.5
