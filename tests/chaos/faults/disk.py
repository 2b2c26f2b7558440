"""A worker's disk is full."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from chaos.faults.fault import Fault

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

BALLAST = "ballast"
PIECE = bytes(1 << 16)


class DiskFull(Fault):
    """Something else takes all free space on a worker's disk, and releases it later."""

    name = "disk full"
    lasts = (5.0, 25.0)

    def targets(self) -> list[str]:
        return [one.name for one in self.bed.workers if one.kind == "small disk"] * (
            self.bed.small_disk
        )

    def holds(self, target: str) -> str:
        return f"disk of {target}"

    def strike(self, target: str, dice: Random) -> None:  # noqa: ARG002  nothing is left to chance
        with suppress(OSError), self._ballast(target).open("ab", buffering=0) as ballast:
            while True:
                ballast.write(PIECE)

    def heal(self, target: str) -> None:
        self._ballast(target).unlink(missing_ok=True)

    def _ballast(self, target: str) -> Path:
        place = self.bed.worker(target).place
        assert place is not None
        return place / BALLAST
