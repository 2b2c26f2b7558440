"""The folders of one attempt on the worker's disk: their size, short names, and cursors in them."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from threading import Lock
from uuid import UUID

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import Fence
from forge_schema.model.quantities import MIB, size_text

from forge_worker.files.safe_files import BLOCK, Listing, remove_tree, weight

# Files in the control folder for the job's results.
RESULT_FILE, JUNIT_FILE = "result.json", "junit.xml"

log = structlog.get_logger(__name__)

PLACE = Path("/tmp")  # noqa: S108  a link there is short, and only its owner can replace it
# Ray appends 68 bytes to the folder for temporary files, `multiprocessing` 32.
LONGEST = 38
DIGITS = 16

# Within one page, so that a write is atomic even if the agent is killed.
BYTES = 2048
MODE = 0o600


class DiskFull(ForgeError):
    """The files to store are larger than the job's disk request."""


def check_size(files: Listing, what: str, limit_mb: int) -> None:
    """Refuse files whose copies would be too large, counting every name and filling holes.

    Raises:
        DiskFull: the copies would exceed `limit_mb` MiB.
    """
    size = sum(size for size, _, _ in files.values())
    if size > limit_mb << 20:
        raise DiskFull(
            f"{what} would be {size_text(size)}, with the holes of sparse files and with each name"
            f" of a file, but the job requested {size_text(limit_mb * MIB)} of disk",
            hint="request more with --disk, or write less there",
        )


@dataclass
class Folders:
    """The folders of an attempt; `root` contains everything, including its fencing token.

    Those of a `new` attempt are not there until they are made. To look takes long: each look lets
    all other threads go first.
    """

    root: Path
    new: bool = False

    @cached_property
    def work(self) -> Path:
        return self.root / "work"

    @cached_property
    def output(self) -> Path:
        return self.root / "output"

    @cached_property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @cached_property
    def control(self) -> Path:
        return self.root / "control"

    @cached_property
    def tmp(self) -> Path:
        """The temporary files of a job that is a process."""
        return self.root / "tmp"

    @cached_property
    def staging(self) -> Path:
        return self.root / "staging"

    @cached_property
    def log(self) -> Path:
        return self.root / "log"

    @cached_property
    def places(self) -> Path:
        return self.root / "places"

    @cached_property
    def stored(self) -> Path:
        return self.root / "stored"

    @cached_property
    def foreign(self) -> Path:
        return self.root / "foreign"

    @cached_property
    def stored_artifacts(self) -> Path:
        return self.root / "stored-artifacts"

    @cached_property
    def secrets(self) -> Path:
        """A hash of the job's secrets."""
        return self.root / "secrets"

    @cached_property
    def preempt(self) -> Path:
        return self.control / "preempt"

    @cached_property
    def save(self) -> Path:
        return self.control / "checkpoint"

    @cached_property
    def metrics(self) -> Path:
        return self.control / "metrics.jsonl"

    def make(self) -> None:
        """Create the folders, and an empty log."""
        self.new = False
        self.root.mkdir(parents=True, exist_ok=True)
        for folder in (self.work, self.output, self.checkpoint, self.control, self.tmp):
            folder.mkdir()
        self.log.touch()

    def fence(self) -> Fence | None:
        """Return the token of the attempt that owns these folders, if it can be read."""
        try:
            kept = json.loads((self.root / "lease.json").read_text(encoding="utf-8"))
            return Fence(kept["job_id"], kept["token"], UUID(kept["nonce"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def has_output(self) -> bool:
        """Return whether there may be files to store, other than the log."""
        try:
            return any(any(place.iterdir()) for place in (self.output, self.checkpoint))
        except OSError:
            return True

    def bytes_used(self) -> int:
        """Return the job's bytes on disk, without the agent's own copies."""
        places = (self.work, self.output, self.checkpoint, self.control, self.tmp)
        return sum(map(weight, places)) + self.log.stat().st_blocks * BLOCK

    def remove(self) -> None:
        """Remove everything, including what the job made unreadable."""
        if self.new:
            return
        forget_path(self.tmp)
        if not remove_tree(self.root):
            log.warning("folder_not_removed", folder=str(self.root))


def short_path(folder: Path) -> Path:
    """Return a short path to a folder: its own, or else a link, which lasts until `forget_path`.

    If no link can be made, the folder's own path is returned.
    """
    if len(os.fsencode(folder)) <= LONGEST:
        return folder
    link = _link(folder)
    _tidy()
    with suppress(OSError):
        link.symlink_to(folder)
    return link if _is_ours(link, folder) else folder


def forget_path(folder: Path) -> None:
    """Remove the link to a folder, if there is one. May be repeated."""
    link = _link(folder)
    if _is_ours(link, folder):
        link.unlink(missing_ok=True)


def _tidy() -> None:
    """Remove the links to folders that are gone, as with a worker that was killed and deleted."""
    for link in PLACE.glob(f"forge-{'[0-9a-f]' * DIGITS}"):
        with suppress(OSError):
            folder = link.readlink()
            if link == _link(folder) and not folder.exists():
                forget_path(folder)


def _link(folder: Path) -> Path:
    return PLACE / f"forge-{sha256(os.fsencode(folder)).hexdigest()[:DIGITS]}"


def _is_ours(link: Path, folder: Path) -> bool:
    """Return whether a link leads to the folder and belongs to this user, not to somebody else."""
    try:
        return link.readlink() == folder and link.lstat().st_uid == os.geteuid()
    except OSError:
        return False


class Cursors:
    """The numbers in a file, which is not there yet if it is `new`; others are 0. Thread-safe.

    The file has its final size from the first write on, so that later writes need no more disk. It
    is not synced to disk: after a crash of the machine, no job is left to continue.

    Raises:
        ValueError: the file exists, but was not written by `keep`.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self._path = path
        self._lock = Lock()
        self._kept: dict[str, int] = {} if new else _read(path)

    def __getitem__(self, name: str) -> int:
        return self._kept.get(name, 0)

    def keep(self, **numbers: int) -> None:
        """Store some numbers atomically; `OSError` if they cannot be written."""
        with self._lock:
            kept = self._kept | numbers
            if kept != self._kept:
                _write(self._path, json.dumps(kept).encode().ljust(BYTES))
                self._kept = kept


def _read(path: Path) -> dict[str, int]:
    try:
        kept = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    if not isinstance(kept, dict) or not all(type(number) is int for number in kept.values()):
        raise ValueError(f"{path} contains no cursors")
    return kept


def _write(path: Path, page: bytes) -> None:
    if len(page) > BYTES:
        raise ValueError(f"more cursors than {path} has room for")
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, MODE)
    try:
        os.pwrite(file, page, 0)
    finally:
        os.close(file)
