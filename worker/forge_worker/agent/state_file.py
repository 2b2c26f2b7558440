"""The state file: what the agent does, for `--status` to read, whether the agent runs or not."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from forge_worker.files.atomic import write_atomically
from forge_worker.loop import Loop

NAME = "state.json"
PERIOD_S = 1.0


class StateKeeper(Loop):
    """Writes what is told, whole or not at all, whenever it has changed."""

    name = "state"

    def __init__(self, folder: Path, told: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__(PERIOD_S)
        self._path = folder / NAME
        self._told = told
        self._written = ""

    def step(self) -> None:
        """Write, if there is news.

        Raises:
            OSError: the file cannot be written.
        """
        text = json.dumps(self._told(), indent=1)
        if text == self._written:
            return
        write_atomically(self._path, text, durable=False)
        self._written = text

    def end(self, patience_s: float | None = None) -> None:
        """Write for the last time."""
        super().end(patience_s)
        with suppress(OSError):
            self.step()


def read(folder: Path) -> dict[str, Any]:
    """Return what an agent of this folder told last; nothing where that cannot be read."""
    with suppress(OSError, ValueError):
        told = json.loads((folder / NAME).read_text(encoding="utf-8"))
        if isinstance(told, dict):
            return told
    return {}
