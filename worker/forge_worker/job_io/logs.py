"""A job's log: shipped in numbered, checksummed chunks; its lines about unstored checkpoints."""

import ctypes
import hashlib
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from io import BufferedRandom
from itertools import product
from pathlib import PurePosixPath
from threading import Lock
from typing import BinaryIO

from forge_schema.model.attempt_records import LogChunkRecord
from forge_schema.model.errors import ForgeError
from forge_schema.storage import Objects
from forge_schema.zstd import compress

from forge_worker.attempt import LiveAttempt, with_advice
from forge_worker.loop import Loop
from forge_worker.queue.gateway import Gateway

CHUNK_BYTES = 4 << 20
# Stored output that stays on disk as well: the end of a job quotes its last lines.
KEPT_BYTES = 1 << 20

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
# Where there is none, as on macOS, nothing is given back.
_fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
if _fallocate is not None:
    _fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
# Failures in a row before a message: a single one that a retry repairs is not reported.
FAILURES = 2
NAMED = 3
# Paths that are named because they cannot be stored; a program may make any number of these.
LEFT_OUT = 20

DATABASES = frozenset([".db", ".db3", ".sqlite", ".sqlite3", ".duckdb", ".mdb", ".lmdb", ".wal"])
LOGS = ("-wal", "-journal")
ARRAYS = frozenset([".npy", ".dat", ".mmap", ".memmap", ".raw"])
HDF5 = frozenset([".h5", ".hdf5", ".nc"])


class LogShipper(Loop):
    """Reads the attempt's log file from where it stopped; stores each object before its row.

    The disk space of what is stored is given back, except for the last of it.
    """

    name = "logs"

    def __init__(
        self, attempt: LiveAttempt, store: Objects, gateway: Gateway, *, period_s: float
    ) -> None:
        super().__init__(period_s)
        self._attempt = attempt
        self._store = store
        self._gateway = gateway
        self._cursors = attempt.cursors
        self._file = str(attempt.folders.log)
        self._number = self._cursors["log_number"]
        self._start = self._cursors["log_start"]
        # The length of a chunk that may be stored already: a repeat must have the same content.
        self._promised = self._cursors["log_promised"]
        self._punched = 0
        # On failure, the last output is shipped by another thread while the loop may be in a step.
        self._turn = Lock()

    def idle(self) -> bool:
        # Once a second for each job, and building a path would take longer than this.
        return self._attempt.lost or os.stat(self._file).st_size <= self._start  # noqa: PTH116

    def step(self) -> None:
        """Upload everything written so far, chunk by chunk.

        Bytes that may be the beginning of a secret wait for the next step, or for the end of the
        loop.
        """
        with self._turn:
            if not self.idle():
                with self._attempt.folders.log.open("r+b") as log:
                    while not self._attempt.lost and (piece := self._next(log)):
                        self._ship(piece)
                        self._free(log)

    def _next(self, log: BufferedRandom) -> bytes:
        """Return the next bytes, with secrets redacted, also those that cross their edges."""
        redactor, count = self._attempt.redactor, self._promised or CHUNK_BYTES
        before = min(self._start, redactor.reach)
        log.seek(self._start - before)
        data = log.read(before + count + redactor.reach)
        kept_back = 0 if self.ending or self._promised else redactor.doubtful(data)
        return redactor.cover(data)[before : min(before + count, len(data) - kept_back)]

    def _ship(self, piece: bytes) -> None:
        self._promised = len(piece)
        self._cursors.keep(log_promised=len(piece))
        key = self._attempt.keys.log_chunk(self._number)
        self._store.put(key, compress(piece))
        digest = hashlib.sha256(piece).hexdigest()
        chunk = LogChunkRecord(self._number, key, self._start, len(piece), digest)
        if not self._gateway.record(self._attempt.fence, chunk):
            self._attempt.lose()
            return
        self._number += 1
        self._start += len(piece)
        self._promised = 0
        self._cursors.keep(log_number=self._number, log_start=self._start, log_promised=0)

    def _free(self, log: BufferedRandom) -> None:
        stored = self._start - KEPT_BYTES - self._attempt.redactor.reach
        if stored >= self._punched + CHUNK_BYTES:
            self._punched = stored
            with suppress(OSError):
                punch(log, stored)


def punch(file: BinaryIO, length: int) -> None:
    """Free the first `length` bytes of a file open for writing; from then on they read as zeros.

    Raises:
        OSError: its file system cannot do this.
    """
    if _fallocate is None:
        return
    if _fallocate(file.fileno(), _PUNCH_HOLE | _KEEP_SIZE, 0, length):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class CheckpointNotes:
    """Reports a cause again only after a checkpoint has been stored in between."""

    def __init__(self, attempt: LiveAttempt, what: str = "checkpoints") -> None:
        self._attempt = attempt
        self._what = what
        self._noted: set[str] = set()
        self._named: set[str] = set()
        self._left_out: set[str] = set()
        self._failures = 0

    def say(self, cause: str, words: str) -> None:
        """Log a message once per cause, unless the machine's disk is full."""
        if cause not in self._noted:
            self._noted.add(cause)
            with suppress(OSError):
                self._attempt.note(words)

    def left_out(self, refused: Mapping[str, str]) -> None:
        """Report what cannot be stored, each path once.

        Args:
            refused: why not, by path; that of the folder itself is empty.
        """
        for path in sorted(refused.keys() - self._left_out):
            if len(self._left_out) > LEFT_OUT:
                return
            self._left_out.add(path)
            words = f"not stored in {self._what}: {path!r} {refused[path]}"
            if not path:
                folder = "output" if self._what == "artifacts" else "checkpoint"
                words = f"the {folder} folder {refused[path]}, so nothing in it is stored"
            elif len(self._left_out) > LEFT_OUT:
                words = f"not stored in {self._what}: more links and special files, not named here"
            self.say(f"left out {path}", words)

    def failed(self, error: ForgeError | OSError, *, last: bool) -> None:
        """Report why a checkpoint could not be stored; it is retried unless it was the last."""
        self._failures += 1
        if last or self._failures >= FAILURES:
            cause = error.code if isinstance(error, ForgeError) else type(error).__name__
            more = "" if last else "; it will be retried"
            words = f"the checkpoint could not be stored: {with_advice(error)}{more}"
            self.say(f"{cause} {last}", words)

    def stored(self) -> None:
        """Record that a checkpoint was stored."""
        if self._failures >= FAILURES:
            self._noted.clear()
            with suppress(OSError):
                self._attempt.note("checkpoints are being stored again")
        self._failures = 0

    def busy(self, paths: Collection[str], kept: Collection[str], *, killed: bool) -> None:
        """Report files that were being written whenever a checkpoint was due, or at a kill.

        Checkpoints contain the last stored version of those in `kept`.
        """
        cases = product((True, False), sorted({advice(path) for path in paths}))
        for old, hint in cases:
            new = [p for p in sorted(paths) if (p in kept) is old and advice(p) == hint]
            if killed:
                self._kept_out(new, old=old)
            elif new := [path for path in new if path not in self._named]:
                what = "keep their last stored version" if old else "are stored without them"
                words = f"{_names(new)}, being written whenever a checkpoint is due; {hint}"
                self.say(f"busy {new[:NAMED]}", f"checkpoints {what}: {words}")
        self._named.update(paths)

    def halfway(self, files: tuple[str, ...]) -> None:
        """Report that a program was killed after it renewed a file and before another."""
        what = "renewed {!r} but not {!r}" if len(files) > 1 else "had removed {!r}"
        words = f"the program was killed in a save, which {what.format(*files)}"
        self.say("halfway", f"the last checkpoint is the one before: {words}")

    def _kept_out(self, paths: list[str], *, old: bool) -> None:
        if paths:
            what = "keeps their last stored version" if old else "is stored without them"
            why = "being written when the program was killed, and not shown to be whole"
            self.say(
                f"killed {paths[:NAMED]}", f"the last checkpoint {what}: {_names(paths)}, {why}"
            )


def _names(paths: list[str]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(repr(path) for path in paths[:NAMED]) + more


def advice(path: str) -> str:
    """Return how to have a file stored that is being written whenever a checkpoint is due."""
    suffix = PurePosixPath(path).suffix
    if suffix in DATABASES or path.endswith(LOGS):
        return (
            "SQLite can be stored in use with `PRAGMA journal_mode=WAL`; or copy the database now"
            " and then, as with `VACUUM INTO`, or use a storage that appends, as Optuna's"
            " JournalStorage"
        )
    if suffix in ARRAYS:
        return "save a copy of the array now and then, to another file that is then renamed"
    if suffix in HDF5:
        return (
            "close it after each save, or write to another file and rename it when it is complete"
        )
    if ".zarr/" in path:
        return (
            "pause between two saves, or write to another folder and rename it when it is complete"
        )
    return "write to another file and rename it when it is complete"
