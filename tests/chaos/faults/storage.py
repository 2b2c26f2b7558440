"""The object store answers 503, hangs, is slow, or loses answers, on one of its routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.faults.fault import Fault

if TYPE_CHECKING:
    from random import Random


class StoreIll(Fault):
    """One kind of store failure, for the users of this route."""

    name = "store ill"
    weight = 3
    lasts = (3.0, 20.0)

    def targets(self) -> list[str]:
        return [way.name for way in self.bed.store.ways]

    def holds(self, target: str) -> str:
        return f"store {target}"

    def strike(self, target: str, dice: Random) -> None:
        self.bed.way(target).fall_ill(dice.choice(["503", "hangs", "slow", "loses answers"]))

    def heal(self, target: str) -> None:
        self.bed.way(target).heal()
