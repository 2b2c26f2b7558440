"""Observations of the clients and the bed, recorded as they happen: one JSON line each."""

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
    """A line: its kind, its time on both clocks in seconds, and its values."""

    kind: str
    wall: float
    monotonic: float
    values: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} " + " ".join(f"{name}={value}" for name, value in self.values.items())


class History:
    """An append-only file; any number of threads and processes may write to it at once.

    The checker reads these kinds (other values are kept and shown):

    - `submitted`: `job_id`, `key` (the idempotency key): one entry for each acknowledged submit
      and repeat; `writes`: the artifacts that the job has whenever it succeeds
    - `cancelled`: `job_id`, `state`: an acknowledged cancel, and the state in the answer
    - `seen`: `job_id`, `state`: the state of a job as shown to a client
    - `limited`: `of` (queue, owner or sweep), `name`, `max_jobs`: a limit that is or will be set
    - `scheduled`: `name`, `every_s`, `first_s`: a schedule that will be added or resumed, and its
      times, in seconds of the epoch
    - `healed`: `fault`: its end; `all` when no more will strike
    - `folder`: `path`: a worker's folder, in which no job may leave files or processes
    - `engine`: `url`, `labels` (`name=value`): no container with all of these labels may be left
    - `process`: `pid`, `started` (in ticks, as in `/proc/PID/stat`): it must have exited

    `clock` gives the time in seconds; entries and rows are ordered by it.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, kind: str, **values: object) -> None:
        """Record an observation made now; values must fit JSON, or are stored as their `str`."""
        line = {
            "kind": kind,
            "wall": self._clock(),
            "monotonic": time.monotonic(),
            "values": values,
        }
        # One write to a file opened for appending, so that writers do not mix lines.
        os.write(self._file, json.dumps(line, default=str).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read(path: Path) -> Iterator[Entry]:
    """Read the entries in the order in which they were written; a missing file has none.

    The last line of a killed writer may be incomplete, and is then left out.
    """
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("}\n"):
                yield Entry(**json.loads(line))
