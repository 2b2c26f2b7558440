"""The metrics tail: turn JSON lines written by a job into metrics and progress."""

import json
import os
from contextlib import suppress
from math import isfinite
from typing import Any

import structlog
from forge_schema.model.attempt_records import MetricLine
from forge_schema.model.errors import ForgeError

from forge_worker.attempt.attempt import Attempt
from forge_worker.files.safe_files import opened
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway

PERIOD_S = 1.0
READ_BYTES = 1 << 20
LINE_BYTES = 64 << 10

log = structlog.get_logger(__name__)


class MetricsTail(Loop):
    """Reads whole lines; a line that is not a JSON object, or is too long, is counted and skipped.

    NaN and infinities, which JSON does not have, are stored as strings.
    """

    name = "metrics"

    def __init__(self, attempt: Attempt, gateway: Gateway) -> None:
        super().__init__(PERIOD_S)
        self._attempt = attempt
        self._gateway = gateway
        self._cursors = attempt.cursors
        self._file = str(attempt.folders.metrics)
        # Lines sent, but not yet recorded here as sent, get the same numbers again.
        self._place = self._cursors["metrics_place"]
        self._number = self._cursors["metrics_number"]
        self.skipped = 0

    def idle(self) -> bool:
        try:
            return os.lstat(self._file).st_size <= self._place
        except FileNotFoundError:
            return True

    def step(self) -> None:
        """Send the lines written since the last step."""
        while not self._attempt.lost and (lines := self._read()):
            self._send(lines)

    def finish(self) -> None:
        """Send the last lines, and report those that were skipped."""
        self.step()
        if self.skipped:
            job_id = self._attempt.fence.job_id
            log.warning(
                "metric_lines_skipped",
                note="not JSON objects",
                job=job_id,
                lines=self.skipped,
            )

    def _read(self) -> list[bytes]:
        file = self._attempt.folders.metrics
        with suppress(OSError), opened(file.parent, file.name) as tail:
            tail.seek(self._place)
            data = tail.read(READ_BYTES)
            whole = data[: data.rfind(b"\n") + 1]
            if not whole and len(data) == READ_BYTES:
                whole = data
            return whole.splitlines(keepends=True)
        return []

    def _send(self, raw: list[bytes]) -> None:
        parsed = [parse(line) for line in raw]
        good = [values for values in parsed if values is not None]
        lines = [
            MetricLine(self._number + n, step_of(values), values) for n, values in enumerate(good)
        ]
        progress = next((p for v in reversed(good) if (p := progress_of(v)) is not None), None)
        self.skipped += len(parsed) - self._keep(lines, progress)
        self._place += sum(map(len, raw))
        self._number += len(lines)
        self._cursors.keep(metrics_place=self._place, metrics_number=self._number)

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
    if len(line) > LINE_BYTES or b"\\u0000" in line:
        return None
    try:
        values = json.loads(line, parse_constant=str, parse_float=_finite)
        # JSON allows half a surrogate pair, but the database refuses it.
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
