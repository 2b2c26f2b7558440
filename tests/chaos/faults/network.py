"""The way to the database or to the servers: slow, silent, shut, or it loses answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.faults.fault import Fault
from chaos.options import TTL_S

if TYPE_CHECKING:
    from random import Random

    from chaos.bed import Bed


class DoorFault(Fault):
    """Strikes one group of processes: all those who use a door."""

    def targets(self) -> list[str]:
        return [door.name for door in self.bed.doors.all]

    def heal(self, target: str) -> None:
        self.bed.door(target).heal()


class CutOff(DoorFault):
    """Nothing passes, and nobody is told: a partition, at times past the lease's time.

    When it ends, what was sent meanwhile arrives late, or the connections are found dead.
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
    """Every connection breaks, and none is taken."""

    name = "connections refused"
    lasts = (0.5, 6.0)

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  nothing is left to chance
        door = self.bed.door(target)
        door.open = False
        self.bed.doors.cut(door)


class SlowLink(DoorFault):
    """Every piece is late, and few bytes pass a second."""

    name = "slow link"
    lasts = (5.0, 15.0)

    def strike(self, target: str, dice: Random) -> None:
        door = self.bed.door(target)
        door.bytes_per_s = dice.choice([20_000, 100_000])
        door.delay_s = dice.uniform(0.05, 0.5)


class AnswersLost(DoorFault):
    """The other side acts, and its answer never comes; at times it is the request that is lost."""

    name = "answers lost"
    weight = 4
    lasts = (5.0, 20.0)

    def strike(self, target: str, dice: Random) -> None:
        door = self.bed.door(target)
        door.loses_answers = dice.choice([0.05, 0.2, 0.5])
        door.loses_requests = dice.choice([0.0, 0.1])
