"""What clients and the bed saw, written down as it happened: one JSON line for each thing."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One line: its kind, when it was noted by both clocks in seconds, and what it tells."""

    kind: str
    wall: float
    monotonic: float
    values: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} " + " ".join(f"{name}={value}" for name, value in self.values.items())


class History:
    """An append-only file; any number of threads and processes may note in it at once.

    The checker reads these kinds (values beyond those named are kept and shown):

    - `submitted`: `job_id`, `key` (the idempotency key): one acknowledged submit, again each time
      that a repeat was acknowledged; `writes`: the artifacts that it has whenever it succeeds
    - `cancelled`: `job_id`, `state`: an acknowledged cancel, and the state that it answered
    - `seen`: `job_id`, `state`: the state of a job as a client was shown it
    - `folder`: `path`: a worker's folder, in which no job may have left anything, nor a process
    - `engine`: `url`, `labels` (`name=value`): no container with all of them may be left there
    - `process`: `pid`, `started` (in ticks, as `/proc/PID/stat` tells it): it must be gone

    `clock` gives the time in seconds; it is that by which entries and rows are put in order.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, kind: str, **values: object) -> None:
        """Note one thing, seen now; values are what JSON can hold, others as their `str`."""
        line = {
            "kind": kind,
            "wall": self._clock(),
            "monotonic": time.monotonic(),
            "values": values,
        }
        # One write to a file opened for appending: lines of different writers do not mix.
        os.write(self._file, json.dumps(line, default=str).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read(path: Path) -> Iterator[Entry]:
    """Read the entries in the order in which they were written; none where there is no file.

    The last line of a writer that was killed may be a part of one, and is left out.
    """
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("}\n"):
                yield Entry(**json.loads(line))
