"""The metrics tail: turn what a job writes into metrics and progress.

That is JSON lines, or if it reports no metrics in them, TensorBoard's event files.
"""

from collections.abc import Callable
from threading import Event, Lock
from time import monotonic

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import counted, duration_text
from forge_schema.model.states import Phase

from forge_worker.attempt import LiveAttempt, Stop
from forge_worker.clock import seconds
from forge_worker.files.safe_files import odd_kind
from forge_worker.job_io.metrics_file import Block, Line, MetricsFile, Position
from forge_worker.job_io.metrics_sender import MetricComplaints, MetricSender
from forge_worker.job_io.tensorboard import BATCH, EventFiles
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway

PERIOD_S = 1.0
# How long one step may last, since others wait for its thread and for its end.
STEP_S = 5.0
# How long the last lines may keep more important output of an ended job waiting.
LAST_S = 2.0
# Finding event files means walking through the job's folders.
EVENTS_S = 10.0
# The job's own lines; an event file is its number plus one.
OWN = 0

# How long lines are stored after a job has ended by itself; and after it was stopped.
ENDED_S, STOPPED_S = 300.0, 30.0
# How long a queue that answers may take none of them.
FAILING_S = 60.0
# How long one try lasts, and the pause after one that failed.
TRY_S, PAUSE_S = 2.0, 1.0

log = structlog.get_logger(__name__)


class MetricsTail(Loop):
    """Reads whole lines; a line that is not a JSON object, or is too long, is counted and skipped.

    Once the job has ended, what it wrote after the last line feed is a line too.
    """

    name = "metrics"

    def __init__(self, attempt: LiveAttempt, gateway: Gateway) -> None:
        super().__init__(PERIOD_S)
        self._attempt = attempt
        self._cursors = attempt.cursors
        self._complaints = MetricComplaints(attempt)
        self._sender = MetricSender(attempt, gateway, self._complaints)
        self._file = MetricsFile(attempt.folders.metrics, self._position(), remembers=True)
        # What was read last, and of that what is not stored yet.
        self._block: Block | None = None
        self._unsent: list[Line] = []
        self._events = EventFiles(attempt)
        self._looked_at = monotonic()
        # Lines sent, but not yet recorded here as sent, get the same numbers again: their source is
        # the first to be read.
        self._source = self._cursors["metrics_source"]
        self._places: dict[int, int] = {}
        self._measures = bool(self._cursors["metrics_own"])
        self._ended = False
        # The last lines may be sent while the loop's last step hangs.
        self._turn = Lock()

    @property
    def skipped(self) -> int:
        """How many lines could not be used."""
        return self._complaints.lines

    @property
    def stored(self) -> int:
        """How many lines were stored, by earlier agents too."""
        return self._sender.number

    def idle(self) -> bool:
        if not self._measures and monotonic() - self._looked_at >= EVENTS_S:
            return False
        return not self._unsent and not self._file.changed()

    def step(self) -> None:
        """Send what was written since the last step, or some of it."""
        if not self.work(monotonic() + STEP_S):
            self.wake()

    def finish(self, limit_s: float = LAST_S) -> bool:
        """Send the last lines of a job that has ended, for a while; return whether none is left."""
        self._ended = True
        self._looked_at = -EVENTS_S
        return self.work(monotonic() + limit_s)

    def work(self, until: float) -> bool:
        """Send lines until there are no more, or until a time; return whether there are no more."""
        if not self._turn.acquire(timeout=max(0.0, until - monotonic())):
            return False
        try:
            # Each has a turn, also after one that is not exhausted.
            return all([self._exhausted(source, until) for source in self._sources()])  # noqa: C419 - it would stop
        finally:
            self._turn.release()

    def _exhausted(self, source: int, until: float) -> bool:
        while not self._attempt.lost and self._forward(source):
            if monotonic() >= until or (self.ending and not self._ended):
                return False
        return True

    def left(self) -> int:
        """Return how many lines are not stored yet."""
        own = len(self._unsent) + self._file.left()
        if self._measures:
            return own
        numbers = self._events.look()
        return own + sum(self._events.left(number, self._place(number + 1)) for number in numbers)

    def close(self) -> None:
        """Close the file, and log what could not be used."""
        self._file.close()
        if self.skipped:
            log.warning("metric_lines_skipped", job=self._attempt.fence.job_id, lines=self.skipped)

    def _sources(self) -> list[int]:
        now, event_files = monotonic(), []
        if not self._measures and (self._source or now - self._looked_at >= EVENTS_S):
            self._looked_at = now
            event_files = [number + 1 for number in self._events.look()]
        return sorted([OWN, *event_files], key=lambda source: source != self._source)

    def _forward(self, source: int) -> bool:
        """Send the next lines of a source, and return whether it may have more."""
        if source == OWN:
            return self._forward_own()
        return not self._measures and self._forward_events(source)

    def _forward_own(self) -> bool:
        if not self._unsent:
            block = self._file.look(last=self._ended)
            if odd := odd_kind(self._attempt.folders.metrics):
                self._complaints.odd(odd)
            if block is None:
                return False
            self._block, self._unsent = block, block.lines
        assert self._block is not None  # noqa: S101 - what is not sent comes from it
        end = self._block.end
        if self._unsent:
            self._begin(OWN)
            done = self._sender.send(self._unsent)
            if done < len(self._unsent):
                if not done:
                    return True
                end = self._block.position(self._unsent[done - 1])
            self._unsent = self._unsent[done:]
            self._measures |= self._sender.measured
        self._keep(end)
        return True

    def _forward_events(self, source: int) -> bool:
        begin = self._place(source)
        most = min(BATCH, self._sender.most)
        lines, end = self._events.read(source - 1, begin, most)
        if end == begin:
            return False
        if lines:
            self._begin(source)
            if not self._sender.send([Line(line, 0, 0) for line in lines]):
                return True
        self._places[source] = end
        self._cursors.keep(metrics_number=self._sender.number, **{f"events{source - 1}_place": end})
        return True

    def _begin(self, source: int) -> None:
        if source != self._source:
            self._cursors.keep(metrics_source=source)
            self._source = source

    def _place(self, source: int) -> int:
        return self._places.get(source, self._cursors[f"events{source - 1}_place"])

    def _position(self) -> Position:
        kept = self._cursors
        return Position(
            kept["metrics_place"],
            kept["metrics_lines"],
            kept["metrics_inode"],
            kept["metrics_mark"],
        )

    def _keep(self, end: Position) -> None:
        self._cursors.keep(
            metrics_number=self._sender.number,
            metrics_own=int(self._measures),
            metrics_place=end.place,
            metrics_lines=end.lines,
            metrics_inode=end.inode,
            metrics_mark=end.mark,
        )


class Settling:
    """Stores the lines of an ended job that are left, and tells in its log how many are lost.

    The time in which the queue does not answer at all does not count: then no end is reported
    either.
    """

    def __init__(
        self,
        attempt: LiveAttempt,
        gateway: Gateway,
        tail: MetricsTail,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._attempt = attempt
        self._gateway = gateway
        self._tail = tail
        self._clock = clock
        self._error = ""

    def settle(self) -> None:
        """Store what is left, as long as that is reasonable."""
        try:
            if why := self._stored():
                self._tell(why)
        finally:
            self._tail.close()

    def give_up(self, why: str) -> None:
        """Try once, and tell how many lines are lost because of something else."""
        try:
            if not self._tail.finish():
                self._tell(why)
        except ForgeError as error:
            self._tell(error.message)
        finally:
            self._tail.close()

    def _stored(self) -> str:
        """Store lines; return why some are left, or ""."""
        asked_before, spent_s, failing_s = self._attempt.stop, 0.0, 0.0
        while not self._attempt.lost:
            began, failed = self._clock(), False
            try:
                if self._tail.finish(TRY_S):
                    return ""
            except ForgeError as error:
                failed, self._error = True, error.message
            if failed and not self._answers():
                spent_s = failing_s = 0.0
            else:
                took_s = self._clock() - began
                spent_s, failing_s = spent_s + took_s, (failing_s + took_s) * failed
            if why := self._why(asked_before, spent_s, failing_s):
                return why
        return ""

    def _answers(self) -> bool:
        """Tell, after a pause, whether the queue answers something else."""
        Event().wait(PAUSE_S)
        try:
            self._attempt.heed(self._gateway.report(self._attempt.fence, Phase.FINISHING))
        except ForgeError:
            return False
        return True

    def _why(self, asked_before: Stop | None, spent_s: float, failing_s: float) -> str:
        """Return why no more lines are stored, or ""."""
        stop, window = self._attempt.stop, self._attempt.window
        if stop is not asked_before and stop is not None:
            # Nothing can be stored, or told, of a lost lease.
            return "" if stop.lost else stop.detail or stop.reason.value
        if window is not None and seconds() >= window.give_back_s:
            return "the worker is leaving"
        if failing_s >= FAILING_S:
            return f"the queue took none of them for {duration_text(failing_s)}: {self._error}"
        limit_s = ENDED_S if stop is None else STOPPED_S
        if spent_s >= limit_s:
            return f"storing them took longer than {duration_text(limit_s)}"
        return ""

    def _tell(self, why: str) -> None:
        left, stored = self._tail.left(), self._tail.stored
        if not left:
            return
        log.warning(
            "metrics_lost", job=self._attempt.fence.job_id, lines=left, stored=stored, why=why
        )
        lost = counted(left, "line")
        were = "were" if left > 1 else "was"
        self._attempt.note(f"{lost} of metrics {were} not stored, after {stored} that were: {why}")
