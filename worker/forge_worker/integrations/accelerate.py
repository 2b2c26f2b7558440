"""Accelerate: `for step in steps(1000, accelerator):`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forge_worker.integrations import group

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def steps(total: int, accelerator: Any, *, save_every: int = 100) -> Iterator[int]:  # noqa: ANN401 - Accelerate's
    """Yield the numbers of the steps that are left, of 1 to `total`.

    The state is what `accelerator.save_state` saves: all that was prepared, what was registered
    for checkpointing, and the state of the random numbers.
    """
    return group.steps(_Accelerated(accelerator), total, save_every)


class _Accelerated(group.Saver):
    def __init__(self, accelerator: Any) -> None:  # noqa: ANN401 - as above
        self._accelerator = accelerator

    def save(self, folder: Path) -> None:
        self._accelerator.save_state(str(folder))

    def load(self, folder: Path) -> None:
        self._accelerator.load_state(str(folder))
