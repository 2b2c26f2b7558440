"""The network to the database or to the servers is slow, silent, closed, or loses answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.faults.fault import Fault
from chaos.options import TTL_S

if TYPE_CHECKING:
    from random import Random

    from chaos.bed import Bed


class DoorFault(Fault):
    """Hits one group of processes: all users of a proxy."""

    def targets(self) -> list[str]:
        return [door.name for door in self.bed.doors.all]

    def heal(self, target: str) -> None:
        self.bed.door(target).heal()


class CutOff(DoorFault):
    """Traffic stops without an error: a partition, sometimes for longer than a lease lasts.

    When it ends, delayed data arrives late, or the connections turn out to be dead.
    """

    name = "cut off"
    weight = 2
    lasts = (2.0, 2.2 * TTL_S)

    def __init__(self, bed: Bed) -> None:
        super().__init__(bed)
        self._dead: set[str] = set()

    def strike(self, target: str, dice: Random) -> None:
        self.bed.door(target).silent = True
        if dice.random() < 0.5:
            self._dead.add(target)

    def heal(self, target: str) -> None:
        if target in self._dead:
            self._dead.remove(target)
            self.bed.doors.cut(self.bed.door(target))
        super().heal(target)


class Refused(DoorFault):
    """All connections break, and new ones are refused."""

    name = "connections refused"
    lasts = (0.5, 6.0)

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  nothing is left to chance
        door = self.bed.door(target)
        door.open = False
        self.bed.doors.cut(door)


class SlowLink(DoorFault):
    """Each chunk is delayed, and bandwidth is low."""

    name = "slow link"
    lasts = (5.0, 15.0)

    def strike(self, target: str, dice: Random) -> None:
        door = self.bed.door(target)
        door.bytes_per_s = dice.choice([20_000, 100_000])
        door.delay_s = dice.uniform(0.05, 0.5)


class AnswersLost(DoorFault):
    """The other side acts, and its answer is lost; sometimes the request is lost instead."""

    name = "answers lost"
    weight = 4
    lasts = (5.0, 20.0)

    def strike(self, target: str, dice: Random) -> None:
        door = self.bed.door(target)
        door.loses_answers = dice.choice([0.05, 0.2, 0.5])
        door.loses_requests = dice.choice([0.0, 0.1])
