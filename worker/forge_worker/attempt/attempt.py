"""One attempt as its loops share it: the lease, the folders, and the first reason to stop."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from time import time

from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import Fence, Grant
from forge_schema.model.states import Phase, Reason, Standing
from forge_schema.queue.queue import DETAIL_LENGTH
from forge_schema.storage import keys

from forge_worker.attempt.cursors import Cursors
from forge_worker.attempt.folders import Folders
from forge_worker.attempt.redact import Redactor
from forge_worker.attempt.window import Window, earlier
from forge_worker.clock import seconds
from forge_worker.files.locks import held
from forge_worker.files.safe_files import weight


@dataclass(frozen=True, slots=True)
class Stop:
    """Why an attempt must stop; `lost` means that its result no longer counts.

    `window` is how long there is for that, where the machine or the worker goes.
    """

    reason: Reason
    detail: str = ""
    lost: bool = False
    window: Window | None = None


class Stopped(Exception):
    """Raised out of work that nobody wants any more, since its attempt must stop."""


@dataclass
class Attempt:
    """What the loops around one job know of it.

    The first reason to stop wins, but `lost` wins over all; of several windows, the one that ends
    first. `settled` says that its end is known and on its way to the queue, by whoever could
    `settle` it; `checkpoint_asked` is set to have a checkpoint stored before the next one is due.
    `cursors` is where each loop keeps how far it has come, for an agent that goes on with the job.
    `redactor` covers the job's secrets in whatever is stored or said of it.
    """

    grant: Grant
    folders: Folders
    stopping: Event = field(default_factory=Event)
    redactor: Redactor = field(default_factory=Redactor)
    phase: Phase = Phase.PREPARING
    # By the machine's clock, for people alone.
    since: float = field(default_factory=time)
    settled: bool = False
    checkpoint_asked: Event = field(default_factory=Event)
    _stop: Stop | None = None
    _window: Window | None = None
    _lock: Lock = field(default_factory=Lock)
    # Folders beside its own that what it brought writes to now, and what each weighed before.
    _beside: dict[Path, int] = field(default_factory=dict)
    cursors: Cursors = field(init=False)
    # By the clock that goes on while no agent runs.
    claimed_s: float = field(default_factory=seconds)
    # When the last renewal was sent that the queue granted, or the claim, by the same clock.
    renewed_s: float = field(default_factory=seconds)

    def __post_init__(self) -> None:
        self.cursors = Cursors(self.folders.places)

    @property
    def fence(self) -> Fence:
        return self.grant.fence

    @property
    def keys(self) -> keys.AttemptKeys:
        """The names of the objects that this attempt writes."""
        return keys.AttemptKeys(self.fence.job_id, self.grant.attempt, self.mark)

    @property
    def mark(self) -> str:
        """The fencing token as a word, which names folders, containers and objects."""
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
        """Return since when the job runs, by the same clock as `claimed_s`; the first call counts.

        Raises:
            OSError: it could not be kept for a later agent.
        """
        if not self.cursors["started_ms"]:
            self.cursors.keep(started_ms=int(seconds() * 1000))
        return self.cursors["started_ms"] / 1000

    @contextmanager
    def weighed(self, folder: Path) -> Iterator[None]:
        """Have what a folder gains meanwhile count as the job's on the disk."""
        self._beside[folder] = weight(folder)
        try:
            yield
        finally:
            del self._beside[folder]

    def bytes_used(self) -> int:
        """Return the bytes on disk of what is the job's, in its own folders and beside them."""
        beside = list(self._beside.items())
        gained = sum(max(0, weight(folder) - before) for folder, before in beside)
        return self.folders.bytes_used() + gained

    def note(self, words: str) -> None:
        """Say something in the job's own log."""
        with self.folders.log.open("ab", buffering=0) as log, held(log):
            log.write(f"forge: {words}\n".encode(errors="backslashreplace"))

    def request_stop(self, stop: Stop) -> None:
        """Have the job stopped; from any thread, any number of times."""
        with self._lock:
            if self._stop is None or (stop.lost and not self._stop.lost):
                self._stop = stop
            self._window = earlier(self._window, stop.window)
        self.stopping.set()

    def settle(self) -> bool:
        """Take it upon the caller to tell the end; False where another one has done so."""
        with self._lock:
            first, self.settled = not self.settled, True
        return first

    def heed(self, standing: Standing) -> None:
        """Do what the queue's answer about the lease asks for."""
        if standing is Standing.LOST:
            self.lose()
        elif standing is Standing.TIMEOUT:
            self.request_stop(Stop(Reason.TIMEOUT, f"over {self.grant.timeout_s} s"))
        elif standing is not Standing.OK:
            self.request_stop(Stop(Reason(standing.value), f"{standing.value} on request"))

    def lose(self) -> None:
        """Have the job killed because its lease is another's now."""
        self.request_stop(Stop(Reason.WORKER_LOST, "the lease was lost", lost=True))

    def while_wanted(self, _moved: int = 0) -> None:
        """Tell a preparation, as its progress, whether to go on.

        Raises:
            Stopped: the attempt must stop.
        """
        if self.stopping.is_set():
            raise Stopped

    def while_held(self, _moved: int = 0) -> None:
        """Tell an upload, as its progress, whether to go on.

        Raises:
            Stopped: the lease is lost.
        """
        if self.lost:
            raise Stopped


def with_advice(error: ForgeError | OSError) -> str:
    """Return what happened and what to do about it: a long message leaves room for the hint."""
    if not isinstance(error, ForgeError):
        return str(error)
    advice = f" ({error.hint})" if error.hint else ""
    return error.message[: DETAIL_LENGTH - len(advice)] + advice
