"""The interface of all faults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from chaos.schedule import Kind

if TYPE_CHECKING:
    from random import Random

    from chaos.bed import Bed


class Fault(ABC):
    """A kind of fault; `weight` is its frequency, `lasts` its shortest and longest seconds.

    One that comes every `every_s` seconds has no weight.
    """

    name: ClassVar[str]
    weight: ClassVar[float] = 1.0
    lasts: ClassVar[tuple[float, float]] = (0.0, 0.0)
    every_s: ClassVar[float] = 0.0

    def __init__(self, bed: Bed) -> None:
        self.bed = bed

    @abstractmethod
    def targets(self) -> list[str]:
        """Return the possible targets; none if the machine lacks something that the fault needs."""

    def holds(self, target: str) -> str:
        """Return the resources that only one fault may use at a time."""
        return target

    @abstractmethod
    def strike(self, target: str, dice: Random) -> None:
        """Inject the fault."""

    def heal(self, target: str) -> None:  # noqa: B027 - many faults end by themselves
        """Undo `strike`, even if it was only partly done."""

    def kind(self) -> Kind:
        """Return the data for the schedule."""
        return Kind(self.name, self.weight, tuple(self.targets()), *self.lasts, self.every_s)
