"""Sending lines of metrics to the queue, and complaints about unusable ones to the job's log."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.attempt_records import ROWS, MetricLines, MetricRecord
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import size_text

from forge_worker.attempt import LiveAttempt
from forge_worker.circuit_breaker import CircuitOpen
from forge_worker.job_io.metrics_file import LINE_BYTES, Line, measured, parse, progress_of, step_of
from forge_worker.queue.gateway import Gateway

FILE = "$FORGE_METRICS_FILE"
MOST_NAMES = 64
QUOTED = 60
# The bits of the cursor that says what was said already, by an earlier agent too.
UNUSABLE, TOO_LONG, MANY_NAMES, ODD, REFUSED = (1 << n for n in range(5))
EXPECTED = 'Forge reads one JSON object a line, such as {"step": 1, "loss": 0.5}'

# After a call that took too long, or that was refused, the next one has fewer lines.
FEWER, MORE = 10, 2
# What is not answered will not be with fewer lines than these either.
FEW = 50
# A server, or a proxy before it, refuses these lines each time.
REFUSALS = frozenset({"server_refused", "object_too_large"})

log = structlog.get_logger(__name__)


class MetricComplaints:
    """Writes to the job's log what is wrong with its metrics, and counts lines that are."""

    def __init__(self, attempt: LiveAttempt) -> None:
        self._attempt = attempt
        self._names: set[str] = set()
        self.lines = 0

    def unusable(self, line: Line) -> None:
        """Count a line that is no JSON object; the first is quoted."""
        self.lines += 1
        if len(line.data) > LINE_BYTES:
            why = f"is longer than {size_text(LINE_BYTES)}"
            self._say(TOO_LONG, f"line {line.number} of {FILE} {why} and was not stored")
            return
        begin = line.data.strip()[:QUOTED].decode(errors="replace")
        self._say(
            UNUSABLE,
            f"line {line.number} of {FILE} is not a JSON object and was not stored: {begin}\n"
            f"forge: {EXPECTED}; other such lines are left out too",
        )

    def names(self, good: Iterable[dict[str, Any]]) -> None:
        """Note the names of metrics; there may be more than are summed up."""
        if len(self._names) > MOST_NAMES:
            return
        self._names.update(*map(measured, good))
        if len(self._names) > MOST_NAMES:
            self._say(
                MANY_NAMES,
                f"the job writes more than {MOST_NAMES} metrics: lists, the table of runs and long"
                f" curves have the first {MOST_NAMES} only; `forge metrics` has all",
            )

    def odd(self, what: str) -> None:
        """Say that the file is none."""
        self._say(ODD, f"{FILE} is {what}, which Forge does not read: write a regular file there")

    def refused(self, line: Line, why: str) -> None:
        """Count a line that the queue refuses."""
        self.lines += 1
        where = f"line {line.number} of {FILE}" if line.number else "an event"
        self._say(REFUSED, f"the queue refuses {where}, which was not stored: {why}")

    def _say(self, kind: int, words: str) -> None:
        cursor = self._attempt.cursors["metrics_said"]
        if not cursor & kind:
            self._attempt.cursors.keep(metrics_said=cursor | kind)
            self._attempt.note(words)


class MetricSender:
    """Sends lines in their order, each with the next number.

    A call repeats the numbers of one that failed, and the queue skips lines that it has. `most` is
    how many lines the next call may have.
    """

    def __init__(
        self, attempt: LiveAttempt, gateway: Gateway, complaints: MetricComplaints
    ) -> None:
        self._attempt = attempt
        self._gateway = gateway
        self._complaints = complaints
        self.number = attempt.cursors["metrics_number"]
        self.most = ROWS
        # Whether the last call had metrics in the sense of lists and tables.
        self.measured = False

    def send(self, lines: Sequence[Line]) -> int:
        """Send the first lines; return with how many it is done, 0 if they are to be sent again.

        Lines that are no objects, and a line that the queue refuses, are left out.

        Raises:
            DatabaseUnreachable: the queue did not answer, or not in time.
        """
        piece = lines[: self.most]
        parsed = [(line, parse(line.data)) for line in piece]
        good = [values for _, values in parsed if values is not None]
        if good and not self._keep(good, refused=lambda why: self._refused(piece, why)):
            return 1 if len(piece) == 1 else 0
        self.measured = any(map(measured, good))
        self._complaints.names(good)
        for line, values in parsed:
            if values is None:
                self._complaints.unusable(line)
        return len(piece)

    def _keep(self, good: list[dict[str, Any]], *, refused: Callable[[str], None]) -> bool:
        """Store objects as lines; False if the queue refuses them."""
        rows = [MetricRecord(self.number + n, step_of(line), line) for n, line in enumerate(good)]
        progress = next((p for v in reversed(good) if (p := progress_of(v)) is not None), None)
        try:
            kept = self._gateway.record(self._attempt.fence, MetricLines(rows, progress))
        except DatabaseUnreachable as error:
            if not isinstance(error, CircuitOpen):
                self.most = max(min(self.most, FEW), self.most // FEWER)
            raise
        except ForgeError as error:
            if error.code not in REFUSALS:
                raise
            refused(error.message)
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is, these lines are not taken
            refused(f"{error}".partition("\n")[0])
            return False
        if not kept:
            self._attempt.lose()
        self.number += len(rows)
        self.most = min(ROWS, self.most * MORE)
        return True

    def _refused(self, piece: Sequence[Line], why: str) -> None:
        """Try fewer lines: one may spoil all. A single one is given up."""
        log.warning("metrics_refused", job=self._attempt.fence.job_id, lines=len(piece), error=why)
        if len(piece) == 1:
            self._complaints.refused(piece[0], why)
        self.most = max(1, len(piece) // FEWER)
