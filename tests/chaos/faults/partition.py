"""A group of workers in a network namespace is cut off from everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.faults.fault import Fault
from chaos.options import TTL_S

if TYPE_CHECKING:
    from random import Random


class Partition(Fault):
    """Packets are dropped, or refused: database, servers and store at once, for the whole group."""

    name = "partition"
    weight = 2
    lasts = (2.0, 2.5 * TTL_S)

    def targets(self) -> list[str]:
        return ["namespace"] * (self.bed.space is not None)

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  there is one
        assert self.bed.space is not None
        self.bed.space.cut(dice.choice(["dropped", "dropped", "refused"]))

    def heal(self, target: str) -> None:  # noqa: ARG002  there is one
        assert self.bed.space is not None
        self.bed.space.mend()
