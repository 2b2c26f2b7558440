"""What is said in the job's log about metrics that cannot be used: each kind once."""

from collections.abc import Iterable
from typing import Any

from forge_schema.model.quantities import size_text

from forge_worker.attempt.attempt import Attempt
from forge_worker.job_io.metrics.lines import LINE_BYTES, measured
from forge_worker.job_io.metrics.metrics_file import Line

FILE = "$FORGE_METRICS_FILE"
MOST_NAMES = 64
QUOTED = 60
# The bits of the cursor that says what was said already, by an earlier agent too.
UNUSABLE, TOO_LONG, MANY_NAMES, ODD, REFUSED = (1 << n for n in range(5))
EXPECTED = 'Forge reads one JSON object a line, such as {"step": 1, "loss": 0.5}'


class Complaints:
    """Writes to the job's log what is wrong with its metrics, and counts lines that are."""

    def __init__(self, attempt: Attempt) -> None:
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
        said = self._attempt.cursors["metrics_said"]
        if not said & kind:
            self._attempt.cursors.keep(metrics_said=said | kind)
            self._attempt.note(words)
