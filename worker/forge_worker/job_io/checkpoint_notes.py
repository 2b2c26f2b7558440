"""Messages in a job's log about checkpoints that were not stored, once per cause."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import product
from pathlib import PurePosixPath

from forge_schema.model.errors import ForgeError

from forge_worker.attempt import LiveAttempt, with_advice

# Failures in a row before a message: a single one that a retry repairs is not reported.
FAILURES = 2
NAMED = 3
# Paths that are named because they cannot be stored; a program may make any number of these.
LEFT_OUT = 20

DATABASES = frozenset([".db", ".db3", ".sqlite", ".sqlite3", ".duckdb", ".mdb", ".lmdb", ".wal"])
LOGS = ("-wal", "-journal")
ARRAYS = frozenset([".npy", ".dat", ".mmap", ".memmap", ".raw"])
HDF5 = frozenset([".h5", ".hdf5", ".nc"])


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
