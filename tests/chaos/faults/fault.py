"""What every fault can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from chaos.schedule import Kind

if TYPE_CHECKING:
    from random import Random

    from chaos.bed import Bed


class Fault:
    """A kind of fault; `weight` is how often it comes, `lasts` from and to how many seconds."""

    name: ClassVar[str]
    weight: ClassVar[float] = 1.0
    lasts: ClassVar[tuple[float, float]] = (0.0, 0.0)

    def __init__(self, bed: Bed) -> None:
        self.bed = bed

    def targets(self) -> list[str]:
        """Return what can be struck; nothing where the machine lacks what the fault needs."""
        raise NotImplementedError

    def holds(self, target: str) -> str:
        """Return what only one fault at a time may have in hand."""
        return target

    def strike(self, target: str, dice: Random) -> None:
        """Let it happen."""
        raise NotImplementedError

    def heal(self, target: str) -> None:
        """Put right what `strike` did, however much of it that was."""

    def kind(self) -> Kind:
        """Return what a schedule needs to know."""
        return Kind(self.name, self.weight, tuple(self.targets()), *self.lasts)
