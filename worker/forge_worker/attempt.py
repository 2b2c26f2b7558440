"""One attempt, shared by its loops: lease, folders, first reason to stop; and all attempts here."""

import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Event, Lock
from time import monotonic, time

import structlog
from forge_schema.ending import DETAIL_LENGTH
from forge_schema.made_once import made_once
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import Fence, Grant
from forge_schema.model.quantities import duration_text
from forge_schema.model.states import Phase, Reason, Standing
from forge_schema.storage import keys

from forge_worker.attempt_folders import Cursors, Folders
from forge_worker.clock import Window, earlier, seconds
from forge_worker.files.safe_files import weight
from forge_worker.files.saved_files import SavedFiles, saved_files
from forge_worker.files.small_files import held
from forge_worker.loop import Alarm

COVER = b"*"
# Each line of a multi-line secret is a secret too, unless it is so short that ordinary text has it.
SHORTEST_LINE = 8
NOT_OURS = "the queue says that it is over or another worker's"

log = structlog.get_logger(__name__)


class Redactor:
    """Covers secrets; without any, text stays unchanged."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted({piece.encode() for secret in secrets for piece in _pieces(secret)})
        # How many bytes before and after a byte decide whether it is part of a secret.
        self.reach = max(map(len, self._secrets), default=1) - 1

    def text(self, words: str) -> str:
        """Return a text with every secret covered."""
        return self.cover(words.encode(errors="replace")).decode(errors="replace")

    def cover(self, data: bytes) -> bytes:
        """Return the data with every secret covered, also overlapping ones; its length stays."""
        covered = bytearray(data)
        for secret in self._secrets:
            at = data.find(secret)
            while at >= 0:
                covered[at : at + len(secret)] = COVER * len(secret)
                at = data.find(secret, at + 1)
        return bytes(covered)

    def doubtful(self, data: bytes) -> int:
        """Return how many bytes at the end may be the beginning of a secret, at most `reach`."""
        return max((_overlap(data, secret) for secret in self._secrets), default=0)


def _pieces(secret: str) -> list[str]:
    lines = [line.strip() for line in secret.splitlines()]
    return [secret, *(line for line in lines if len(line) >= SHORTEST_LINE)]


def _overlap(data: bytes, secret: bytes) -> int:
    tail = data[-(len(secret) - 1) :]
    at = tail.find(secret[:1])
    while at >= 0:
        if secret.startswith(tail[at:]):
            return len(tail) - at
        at = tail.find(secret[:1], at + 1)
    return 0


class Stopping(Event):
    """An event that also ends a wait for a descriptor, such as that of a job's process."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._ends: list[int] = []
        weakref.finalize(self, _close, self._ends)

    def set(self) -> None:
        super().set()
        with self._lock:
            self._ring()

    def descriptor(self) -> int:
        """Return a descriptor that can be read from once the event is set."""
        with self._lock:
            if not self._ends:
                self._ends += os.pipe()
                os.set_blocking(self._ends[1], False)
                if self.is_set():
                    self._ring()
            return self._ends[0]

    def _ring(self) -> None:
        if self._ends:
            with suppress(BlockingIOError):
                os.write(self._ends[1], b"!")


def _close(ends: list[int]) -> None:
    for end in ends:
        os.close(end)


@dataclass(frozen=True, slots=True)
class Stop:
    """Why an attempt must stop; `lost` means that its result no longer counts.

    `window` is the time left for that, if the machine or the worker is leaving.
    """

    reason: Reason
    detail: str = ""
    lost: bool = False
    window: Window | None = None


class Stopped(Exception):
    """Raised from work that is no longer wanted, because its attempt must stop."""


@dataclass
class LiveAttempt:
    """State shared by the loops around one job.

    The first reason to stop wins, but `lost` overrides it; of several windows, the one that ends
    first wins. `end_decided` means that the end is known and will be delivered by the caller whose
    `decide_end` succeeded; `checkpoint_asked` requests a checkpoint before the next one is due.
    `cursors` has each loop's position, for an agent that adopts the job. `redactor` covers the
    job's secrets in everything that is stored or logged.
    """

    grant: Grant
    folders: Folders
    stopping: Stopping = field(default_factory=Stopping)
    redactor: Redactor = field(default_factory=Redactor)
    phase: Phase = Phase.PREPARING
    # Wall-clock time, for display only.
    since: float = field(default_factory=time)
    end_decided: bool = False
    # Continued by this agent after another, which the queue has not been told yet.
    adopted: bool = False
    checkpoint_asked: Alarm = field(default_factory=Alarm)
    # Removes what an ended job leaves in an engine; called once its end was reported.
    clear_away: Callable[[], None] = lambda: None
    _stop: Stop | None = None
    _window: Window | None = None
    _lock: Lock = field(default_factory=Lock)
    # Other folders that the job's code writes to now, with their sizes before.
    _beside: dict[Path, int] = field(default_factory=dict)
    cursors: Cursors = field(init=False)
    fence: Fence = field(init=False)
    # By the boot-time clock, which continues while no agent runs.
    claimed_s: float = field(default_factory=seconds)
    # When the last granted renewal, or the claim, was sent, by the same clock.
    renewed_s: float = field(default_factory=seconds)

    def __post_init__(self) -> None:
        self.cursors = Cursors(self.folders.places, new=self.folders.new)
        self.fence = self.grant.fence

    @made_once
    def saved(self) -> SavedFiles:
        """The files that make its checkpoints."""
        folder = self.grant.spec.get("checkpoint_dir")
        return saved_files(self.folders.root, folder, self.grant.spec.get("checkpoint", ()))

    @property
    def keys(self) -> keys.AttemptKeys:
        """Keys of the objects that this attempt writes."""
        return keys.AttemptKeys(self.fence.job_id, self.grant.attempt, self.mark)

    @property
    def mark(self) -> str:
        """The fencing token as text, used in names of folders, containers and objects."""
        return self.fence.mark

    @property
    def stop(self) -> Stop | None:
        return self._stop

    @property
    def window(self) -> Window | None:
        return self._window

    @property
    def lost(self) -> bool:
        return self._stop is not None and self._stop.lost

    def started_s(self) -> float:
        """Return the job's start, by the clock of `claimed_s`; the first call sets it.

        Raises:
            OSError: it could not be saved for a later agent.
        """
        if not self.cursors["started_ms"]:
            self.cursors.keep(started_ms=int(seconds() * 1000))
        return self.cursors["started_ms"] / 1000

    @property
    def held_s(self) -> float:
        """How long the job has had its resources, or had them when it ended, in seconds."""
        return (self.cursors["ended_ms"] / 1000 or seconds()) - self.claimed_s

    @property
    def over(self) -> bool:
        """Whether nothing of the job lives any more, although its output may still be stored."""
        return self.cursors["ended_ms"] > 0

    def end(self) -> None:
        """Note that nothing of the job lives any more. May be repeated.

        Raises:
            OSError: it could not be saved for a later agent.
        """
        if not self.over:
            self.cursors.keep(ended_ms=int(seconds() * 1000))

    @contextmanager
    def weighed(self, folder: Path) -> Iterator[None]:
        """Count the growth of a folder during the block as the job's disk use."""
        self._beside[folder] = weight(folder)
        try:
            yield
        finally:
            del self._beside[folder]

    def bytes_used(self) -> int:
        """Return the job's bytes on disk, in its own folders and others."""
        beside = list(self._beside.items())
        gained = sum(max(0, weight(folder) - before) for folder, before in beside)
        return self.folders.bytes_used() + gained

    def note(self, words: str) -> None:
        """Write a message to the job's own log."""
        with self.folders.log.open("ab", buffering=0) as log, held(log):
            log.write(f"forge: {words}\n".encode(errors="backslashreplace"))

    def request_stop(self, stop: Stop) -> bool:
        """Request that the job be stopped, and return whether this is now why.

        Thread-safe; may be repeated.
        """
        with self._lock:
            wins = self._stop is None or (stop.lost and not self._stop.lost)
            if wins:
                self._stop = stop
            self._window = earlier(self._window, stop.window)
        self.stopping.set()
        return wins

    def decide_end(self) -> bool:
        """Make the caller responsible for delivering the end; False if another one already is."""
        with self._lock:
            first, self.end_decided = not self.end_decided, True
        return first

    def heed(self, standing: Standing) -> None:
        """Act on the queue's answer about the lease."""
        if standing is Standing.LOST:
            self.lose()
        elif standing is Standing.TIMEOUT:
            self.request_stop(
                Stop(Reason.TIMEOUT, f"longer than {duration_text(self.grant.timeout_s or 0)}")
            )
        elif standing is Standing.ENDED:
            self.request_stop(Stop(Reason.RUN_ENDED, "the run ended on all machines"))
        elif standing is not Standing.OK:
            self.request_stop(Stop(Reason(standing.value), f"{standing.value} on request"))

    def lose(self, reason: str = NOT_OURS) -> None:
        """Have the job killed, because its lease is lost. May be repeated."""
        stop = Stop(Reason.WORKER_LOST, "the lease was lost", lost=True)
        # Several loops may hear of it at once. A renewal that crossed the delivery of the end finds
        # no lease either: whether the end counts is said by the answer to that.
        if self.request_stop(stop) and not self.end_decided:
            unrenewed_s = round(seconds() - self.renewed_s, 1)
            job = {"job": self.fence.job_id, "attempt": self.grant.attempt}
            log.warning("lease_lost", **job, reason=reason, unrenewed_s=unrenewed_s)

    def while_wanted(self, _moved: int = 0) -> None:
        """Check whether a preparation should continue; used as its progress callback.

        Raises:
            Stopped: the attempt must stop.
        """
        if self.stopping.is_set():
            raise Stopped

    def while_held(self, _moved: int = 0) -> None:
        """Check whether an upload should continue; used as its progress callback.

        Raises:
            Stopped: the lease is lost.
        """
        if self.lost:
            raise Stopped


def with_advice(error: ForgeError | OSError) -> str:
    """Return an error's message and hint; a long message is shortened to keep the hint."""
    if not isinstance(error, ForgeError):
        return str(error)
    advice = f" ({error.hint})" if error.hint else ""
    return error.message[: DETAIL_LENGTH - len(advice)] + advice


class LiveAttempts:
    """Attempts by fencing token, and when the last one ended. Thread-safe."""

    def __init__(self) -> None:
        self.ended_s = monotonic()
        self._held: dict[int, LiveAttempt] = {}
        self._newest: dict[int, LiveAttempt] = {}
        self._changed = Condition()

    def add(self, attempt: LiveAttempt) -> None:
        """Add an attempt; an earlier attempt of the same job has lost its lease."""
        fence = attempt.fence
        with self._changed:
            earlier = self._newest.get(fence.job_id)
            self._held[fence.token] = self._newest[fence.job_id] = attempt
        if earlier is not None:
            # A job is granted again only after its lease was lost; this worker may not know yet.
            earlier.lose("this worker was granted the job again")

    def remove(self, token: int) -> None:
        with self._changed:
            attempt = self._held.pop(token)
            if self._newest.get(attempt.fence.job_id) is attempt:
                del self._newest[attempt.fence.job_id]
            self.ended_s = monotonic()
            self._changed.notify_all()

    def attempts(self) -> list[LiveAttempt]:
        with self._changed:
            return list(self._held.values())

    def preparing(self) -> int:
        """Return how many attempts have not started yet."""
        return [attempt.phase for attempt in self.attempts()].count(Phase.PREPARING)

    def join_preparing(self, patience_s: float) -> None:
        """Wait until every attempt has started or is gone, or patience runs out."""
        with self._changed:
            self._changed.wait_for(lambda: not self.preparing(), patience_s)

    def join(self, patience_s: Callable[[], float | None]) -> None:
        """Wait until no attempt is left, including those added meanwhile; or patience runs out."""
        with self._changed:
            while self._held:
                left_s = patience_s()
                self._changed.wait(left_s)
                if left_s == 0:
                    return
