"""When a checkpoint is stored: at the program's request or after rank 0; and which go again."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from threading import Lock
from time import monotonic

import structlog
from forge_schema.model.attempt_records import ALL
from forge_schema.model.errors import ForgeError
from forge_schema.model.reading import LARGEST
from forge_schema.model.spec import JobSpec
from forge_schema.queue.thinning import MOST

from forge_worker.attempt import LiveAttempt, Stopped
from forge_worker.clock import seconds
from forge_worker.files.safe_files import odd_kind, opened, status_in
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway

REQUEST_POLL_S = 0.5
# The most that is read of the file: no step is longer.
MOST_BYTES = 40
# After a request, a rank looks for rank 0's checkpoint this soon, then after twice the time each.
SOON_S = 0.5
BAD_STEP = (
    "$FORGE_CHECKPOINT_FILE does not hold the number of a step, so it counts as touched only: write"
    " a number from 0 to 2**53 - 1, or nothing"
)
# How much longer than its limit a last checkpoint may take, once all but its row is stored.
ROW_S = 60.0
NO_STEP = (
    "rank 0 commits steps, the last one is {step}, and this rank has committed none: no checkpoint"
    " counts until every rank has committed its step, with job.save_now(step)"
)
THINNING_S = 60.0
KEEP: int = JobSpec.model_fields["keep_checkpoints"].default

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Commit:
    """A step that the program committed; each `job.save_now` writes a file with an inode."""

    step: int
    inode: int


@dataclass(frozen=True, slots=True)
class SaveOccasion:
    """Why to store a checkpoint now.

    One that is `due` is stored even if no file has changed. Without `records`, changed files are
    uploaded, but make no checkpoint.
    """

    commit: Commit | None
    due: bool
    records: bool


class Commits:
    """The steps that the program commits, of which each is to be stored once."""

    def __init__(self, attempt: LiveAttempt) -> None:
        self._attempt = attempt
        self._file = attempt.folders.save
        self._noted = False
        # The cursor counts from 1, since one that was never kept is 0.
        step, inode = attempt.cursors["committed"] - 1, attempt.cursors["committed_inode"]
        self._stored = Commit(step, inode) if step >= 0 else None
        self.begun = self._stored is not None

    def pending(self) -> Commit | None:
        """Return the commit that is not stored yet, if there is one.

        From the program's first commit on, `begun` is true.
        """
        commit = self._read()
        self.begun = self.begun or commit is not None
        return None if commit == self._stored else commit

    def repeats(self, commit: Commit) -> bool:
        """Tell whether the last commit that was stored is of the same step."""
        return self._stored is not None and self._stored.step == commit.step

    def note_stored(self, commit: Commit) -> None:
        """Record that a commit is stored, for a later agent too."""
        self._stored = commit
        self._attempt.cursors.keep(committed=commit.step + 1, committed_inode=commit.inode)

    def resume(self, step: int | None) -> None:
        """Record that the newest checkpoint is of this step: an earlier agent stored it."""
        commit = self._read()
        if commit is not None and commit.step == step:
            self._stored, self.begun = commit, True

    def _read(self) -> Commit | None:
        if not self._noted and (odd := odd_kind(self._file)):
            self._noted = True
            self._attempt.note(f"$FORGE_CHECKPOINT_FILE is {odd}, so it requests no checkpoint")
        with suppress(OSError), opened(self._file.parent, self._file.name) as file:
            text, inode = file.read(MOST_BYTES).strip(), status_in(file)[2]
            if text.isdigit() and int(text) <= LARGEST:
                return Commit(int(text), inode)
            if text and not self._noted:
                self._noted = True
                self._attempt.note(BAD_STEP)
        return None


class Following:
    """Which checkpoint of rank 0 the next one of this rank follows; None for rank 0 itself.

    It is looked up before the folder is. So whatever rank 0 had stored by then, such as the name of
    a step that all ranks have written, this rank had written too. One is `due` if rank 0 has stored
    another one since this rank did.
    """

    def __init__(self, attempt: LiveAttempt, gateway: Gateway, commits: Commits) -> None:
        self._attempt = attempt
        self._gateway = gateway
        self._commits = commits
        self._stored = self._newest = -1
        self._first_step: int | None = None
        self._noted = False

    @property
    def number(self) -> int | None:
        return self._newest if self._newest >= 0 else None

    @property
    def due(self) -> bool:
        return self._newest > self._stored

    def look(self, *, ended: bool) -> bool:
        """Look up rank 0's newest one; False if the queue stores none of this rank.

        What it takes after its program has `ended` follows all that rank 0 may store.
        """
        if self._attempt.grant.rank == 0:
            return True
        newest = self._gateway.newest_checkpoints(self._attempt.fence)
        if newest is None:
            return False
        number = newest["master_number"]
        self._newest = ALL if ended else self._newest if number is None else number
        self._compare(newest["master_step"])
        return True

    def _compare(self, step: int | None) -> None:
        """Note in the job's log if rank 0 commits one step after the other, and this rank none."""
        if step is None or self._noted or self._commits.begun:
            return
        if self._first_step is None:
            self._first_step = step
        if step != self._first_step:
            self._noted = True
            self._attempt.note(NO_STEP.format(step=step))

    def note_stored(self) -> None:
        self._stored = self._newest

    def resume(self, follows: int | None) -> None:
        """Go on after the newest checkpoint of this rank, which an earlier agent stored."""
        self._stored = self._newest = -1 if follows is None else follows


class TimeLimit:
    """Until when a successful job's last checkpoint may be stored; there is none for others.

    It is given up before its row is being stored, or not at all: so whatever `gave_up` says of it
    is true. `concerns_row` is false while an earlier checkpoint is still being stored.
    """

    def __init__(self, attempt: LiveAttempt) -> None:
        self._attempt = attempt
        self._until = self._row_until = inf
        self._lock = Lock()
        self.concerns_row = False
        self.gave_up = ""

    def begin(self, limit_s: float) -> None:
        """Give it this time from now on."""
        self._until = monotonic() + limit_s

    def over(self) -> bool:
        """Tell whether to give up, and do so."""
        with self._lock:
            window = self._attempt.window
            leaves = window is not None and seconds() >= window.give_back_s
            now, storing = monotonic(), self._row_until < inf
            ends = leaves or now >= (max(self._row_until, self._until) if storing else self._until)
            if self._until < inf and ends and not self.gave_up:
                self.gave_up = "may not have been stored" if storing else "was not stored"
            return bool(self.gave_up)

    @contextmanager
    def storing_row(self) -> Iterator[None]:
        """Store a checkpoint's row in the block, unless it was given up; `Stopped` if it was."""
        with self._lock:
            if self.gave_up:
                raise Stopped
            if self.concerns_row:
                self._row_until = monotonic() + ROW_S
        try:
            yield
        except BaseException:
            self._row_until = inf
            raise
        if self.concerns_row:
            # Nothing else of it takes time.
            self._until = inf


class CheckpointRequest(Loop):
    """Wakes the sync when the file is touched, and again if it was touched meanwhile."""

    name = "checkpoint call"

    def __init__(self, attempt: LiveAttempt, sync: Loop) -> None:
        super().__init__(REQUEST_POLL_S)
        self._attempt = attempt
        self._file = str(attempt.folders.save)
        self._sync = sync
        self._seen: tuple[int, int] | None = None

    def step(self) -> None:
        touched = self._touched()
        if touched not in {None, self._seen}:
            if self._attempt.grant.rank > 0:
                # Rank 0, which is asked at the same time, stores its own meanwhile.
                self._sync.period_s = min(SOON_S, self._sync.period_s)
            self._sync.wake()
        self._seen = touched

    def _touched(self) -> tuple[int, int] | None:
        # Twice a second for each job, hence without a path that is built or a folder that is
        # opened.
        try:
            status = os.lstat(self._file)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino


class Thinner(Loop):
    """Thins out checkpoints once per request; a failed run is made up for by the next.

    It stops before the next object if the attempt must stop. A call that hangs is abandoned.
    """

    name = "thinning"

    def __init__(self, attempt: LiveAttempt, gateway: Gateway) -> None:
        super().__init__(THINNING_S)
        self._attempt = attempt
        self._gateway = gateway
        self._asked = False
        self._everywhere = True

    def ask(self) -> None:
        """Request a run now."""
        self._asked = True
        self.wake()

    def step(self) -> None:
        """Thin out if requested."""
        if not self._asked or not self._go_on():
            return
        self._asked = False
        # Once per attempt, whether it succeeds or not, and again only while there is much to
        # remove.
        everywhere, self._everywhere = self._everywhere, False
        fence, keep = self._attempt.fence, self._attempt.grant.spec.get("keep_checkpoints", KEEP)
        try:
            gone = self._gateway.thin_checkpoints(
                fence, keep, everywhere=everywhere, go_on=self._go_on
            )
        except ForgeError as error:
            log.warning("checkpoints_not_thinned", job=fence.job_id, error=error.message)
        else:
            self._everywhere = gone >= MOST

    def end(self, patience_s: float | None = None) -> None:  # noqa: ARG002  a store may take long
        """End without waiting for an answer."""
        super().end(0.0)

    def _go_on(self) -> bool:
        return not (self.ending or self._attempt.stopping.is_set())
