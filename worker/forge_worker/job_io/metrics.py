"""The metrics tail: turn what a job writes into metrics and progress.

That is JSON lines, or if it reports no metrics in them, TensorBoard's event files.
"""

import json
import os
from contextlib import suppress
from math import isfinite
from time import monotonic
from typing import Any

import structlog
from forge_schema.model.attempt_records import MetricLine
from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import storable
from forge_schema.model.results import PROGRESS

from forge_worker.attempt.attempt import Attempt
from forge_worker.files.safe_files import opened
from forge_worker.job_io.tensorboard.event_files import EventFiles
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway

PERIOD_S = 1.0
READ_BYTES = 1 << 20
LINE_BYTES = 64 << 10
# Finding event files means walking through the job's folders.
EVENTS_S = 10.0
# The job's own lines; an event file is its number plus one.
OWN = 0

log = structlog.get_logger(__name__)


class MetricsTail(Loop):
    """Reads whole lines; a line that is not a JSON object, or is too long, is counted and skipped.

    Once the job has ended, what it wrote after the last line feed is a line too.

    NaN and infinities, which JSON does not have, are stored as strings. In text, a replacement
    character stands for a NUL and for half a surrogate pair.
    """

    name = "metrics"

    def __init__(self, attempt: Attempt, gateway: Gateway) -> None:
        super().__init__(PERIOD_S)
        self._attempt = attempt
        self._gateway = gateway
        self._cursors = attempt.cursors
        self._file = str(attempt.folders.metrics)
        self._events = EventFiles(attempt)
        self._looked_at = monotonic()
        # Lines sent, but not yet recorded here as sent, get the same numbers again: their source is
        # the first to be read.
        self._source = self._cursors["metrics_source"]
        self._places: dict[int, int] = {}
        self._number = self._cursors["metrics_number"]
        self._measures = bool(self._cursors["metrics_own"])
        self._ended = False
        self.skipped = 0

    def idle(self) -> bool:
        if not self._measures and monotonic() - self._looked_at >= EVENTS_S:
            return False
        try:
            return os.lstat(self._file).st_size <= self._place(OWN)
        except FileNotFoundError:
            return True

    def step(self) -> None:
        """Send what was written since the last step."""
        for source in self._sources():
            while not self._attempt.lost and self._forward(source):
                pass

    def finish(self) -> None:
        """Send the last lines, and report those that were skipped."""
        self._looked_at = -EVENTS_S
        self._ended = True
        self.step()
        if self.skipped:
            job_id = self._attempt.fence.job_id
            log.warning(
                "metric_lines_skipped",
                note="not JSON objects",
                job=job_id,
                lines=self.skipped,
            )

    def _sources(self) -> list[int]:
        now, found = monotonic(), []
        if not self._measures and (self._source or now - self._looked_at >= EVENTS_S):
            self._looked_at = now
            found = [number + 1 for number in self._events.look()]
        return sorted([OWN, *found], key=lambda source: source != self._source)

    def _forward(self, source: int) -> bool:
        """Send the next lines of a source, and return whether it may have more."""
        if source != OWN and self._measures:
            return False
        begin = self._place(source)
        lines, end = self._read(begin) if source == OWN else self._events.read(source - 1, begin)
        if lines and source != self._source:
            self._cursors.keep(metrics_source=source)
            self._source = source
        if end > begin:
            self._send(lines, source, end)
        return end > begin

    def _place(self, source: int) -> int:
        return self._places.get(source, self._cursors[_cursor(source)])

    def _read(self, place: int) -> tuple[list[bytes], int]:
        file = self._attempt.folders.metrics
        with suppress(OSError), opened(file.parent, file.name) as tail:
            tail.seek(place)
            data = tail.read(READ_BYTES)
            whole = data[: data.rfind(b"\n") + 1]
            is_full = len(data) == READ_BYTES
            if (self._ended and not is_full) or (is_full and not whole):
                whole = data
            return whole.splitlines(keepends=True), place + len(whole)
        return [], place

    def _send(self, raw: list[bytes], source: int, end: int) -> None:
        parsed = [parse(line) for line in raw]
        good = [values for values in parsed if values is not None]
        lines = [
            MetricLine(self._number + n, step_of(values), values) for n, values in enumerate(good)
        ]
        progress = next((p for v in reversed(good) if (p := progress_of(v)) is not None), None)
        self.skipped += len(parsed) - self._keep(lines, progress)
        self._places[source] = end
        self._number += len(lines)
        self._measures |= source == OWN and any(map(_measures, good))
        self._cursors.keep(
            metrics_number=self._number,
            metrics_own=int(self._measures),
            **{_cursor(source): end},
        )

    def _keep(self, lines: list[MetricLine], progress: float | None) -> int:
        """Send lines, and return how many were stored; lines that the database refuses are lost."""
        if not lines:
            return 0
        try:
            if not self._gateway.add_metrics(self._attempt.fence, lines, progress=progress):
                self._attempt.lose()
        except ForgeError:
            raise
        except Exception:
            log.exception("metrics_refused", job=self._attempt.fence.job_id, lines=len(lines))
            return 0
        return len(lines)


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line, or None."""
    if len(line) > LINE_BYTES:
        return None
    try:
        values = json.loads(storable(line), parse_constant=str, parse_float=_finite)
        # Python also reads half a surrogate pair as UTF-8, but the database refuses it.
        json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def step_of(values: dict[str, Any]) -> float | None:
    """Return the step in a line, or None."""
    return _number(values.get("step"))


def progress_of(values: dict[str, Any]) -> float | None:
    """Return the share done, 0 to 1, from `progress`, or from `step` and `total`."""
    step, total = step_of(values), _number(values.get("total"))
    share = _number(values.get("progress"))
    if share is None and step is not None and total:
        share = step / total
    return None if share is None else min(max(share, 0.0), 1.0)


def _measures(values: dict[str, Any]) -> bool:
    return any(
        name not in PROGRESS and _number(value) is not None for name, value in values.items()
    )


def _cursor(source: int) -> str:
    return "metrics_place" if source == OWN else f"events{source - 1}_place"


def _finite(digits: str) -> float | str:
    # 1e999 parses as infinity, which Postgres's JSON lacks: it is stored as a string.
    if isfinite(value := float(digits)):
        return value
    return "Infinity" if value > 0 else "-Infinity"


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    with suppress(OverflowError):
        return float(value)
    return None
