"""Signs of life of a job: output, progress that it tells, GPUs at work.

Each answers whether there was one since it was asked before; None says that nobody looked.
"""

from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path

from forge_worker.files.safe_files import opened
from forge_worker.job_io.attempt_usage import Watched
from forge_worker.job_io.metrics import LINE_BYTES, parse, progress_of, step_of

READ_BYTES = 1 << 20


class Output:
    """Whether the log has grown."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._size = 0

    def __call__(self) -> bool:
        before, self._size = self._size, self._log.stat().st_size
        return self._size != before


class Progress:
    """Whether the step or the share done rose; a counter that fell has begun anew.

    It reads the metrics by itself: the queue, to which they are sent, may be away.
    """

    def __init__(self, metrics: Path) -> None:
        self._metrics = metrics
        self._place: int | None = None
        self._last: dict[str, float] = {}

    def __call__(self) -> bool:
        # Every line is taken, also behind one that rises.
        return sum(self._rises(line) for line in self._lines()) > 0

    def _lines(self) -> list[bytes]:
        with suppress(OSError), opened(self._metrics.parent, self._metrics.name) as file:
            size = file.seek(0, 2)
            # What was written before, an earlier agent heard.
            place = size if self._place is None else self._place
            # Of much, and of a file that was begun anew, the end tells enough.
            file.seek(max(place if place <= size else 0, size - READ_BYTES))
            lines = file.read(READ_BYTES).splitlines(keepends=True)
            half = len(lines[-1]) if lines and not lines[-1].endswith(b"\n") else 0
            self._place = size - (half if half < LINE_BYTES else 0)
            return lines
        self._place = self._place or 0
        return []

    def _rises(self, line: bytes) -> bool:
        if not line.endswith(b"\n") or (values := parse(line)) is None:
            return False
        told = {"step": step_of(values), "progress": progress_of(values)}
        known = {name: value for name, value in told.items() if value is not None}
        risen = any(value > self._last.get(name, -inf) for name, value in known.items())
        self._last |= known
        return risen


class Gpus:
    """Whether one of the GPUs was busier than so many percent; one that does not say, may be."""

    def __init__(self, watched: Watched, percent: float, tell: Callable[[str], None]) -> None:
        self._watched = watched
        self._percent = percent
        self._tell = tell
        self._told = False

    def __call__(self) -> bool | None:
        looks = self._watched.busiest()
        if None in looks:
            self._tell_once("its GPUs do not say how busy they are: --stall-idle-gpu is ignored")
            return True
        known = [percent for percent in looks if percent is not None]
        return max(known) > self._percent if known else None

    def _tell_once(self, words: str) -> None:
        if not self._told:
            self._told = True
            self._tell(words)
