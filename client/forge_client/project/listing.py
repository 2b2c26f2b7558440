"""The entries of a folder's bundle."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from forge_client.errors import ClientError
from forge_client.project.ignore import LeftOut

# Later stores into a mapped file are stamped once the kernel has written the page back, which it
# does every 30 to 35 s; the clocks of all file systems are finer.
SETTLED_NS = 60_000_000_000
IGNORE_HINT = "list it in .forgeignore if the job does not need it"


class BundleError(ClientError):
    """The folder cannot be packed into a bundle."""

    code = "bundle_invalid"


@dataclass(frozen=True)
class BundleEntry:
    """A file or folder of the bundle: `name` in the bundle, `path` of its content.

    With a `link`, it is a link with this text, to a file or to a `folder`. An inode's `ctime_ns`
    is set by the kernel at each change of the file, and by nobody else.
    """

    name: str
    path: Path
    folder: bool
    executable: bool = False
    size: int = 0
    mtime_ns: int = 0
    link: str | None = None
    inode: int = 0
    ctime_ns: int = 0


@dataclass(frozen=True)
class Listing:
    """The entries, each after its parent folder.

    `left_out` are the paths left out although no ignore file names them, and `ignored` those that
    one names; `unmatched` are the patterns of `include` that matched nothing. The `faults` are the
    reasons why git could not be asked which files are the project's. It began `at_ns`, in
    nanoseconds since the epoch.
    """

    root: Path
    entries: tuple[BundleEntry, ...]
    left_out: tuple[LeftOut, ...] = ()
    unmatched: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    at_ns: int = 0

    @property
    def fingerprint(self) -> str | None:
        """What tells this listing from that of any other content, or of later content.

        As in git's index, a file is known by its size, times and inode. None if these do not tell:
        for a while after a change, and in memory.
        """
        newest = max((entry.ctime_ns for entry in self.files), default=0)
        if newest > self.at_ns - SETTLED_NS or _in_memory(self.root):
            return None
        digest = hashlib.sha256()
        for each in self.entries:
            kind = (
                each.folder,
                each.executable,
                each.size,
                each.mtime_ns,
                each.ctime_ns,
                each.inode,
            )
            digest.update(
                f"{each.name}\0{each.link}\0{each.path}\0{kind}\0".encode(errors="surrogateescape")
            )
        return digest.hexdigest()

    @property
    def links_last(self) -> list[BundleEntry]:
        """The entries as a bundle has them: whoever unpacks it writes nothing through a link."""
        return sorted(self.entries, key=lambda entry: entry.link is not None)

    @property
    def files(self) -> tuple[BundleEntry, ...]:
        """The entries that are files, or links to files."""
        return tuple(entry for entry in self.entries if not entry.folder)

    @property
    def total_bytes(self) -> int:
        """The size of all files, in bytes, before compression."""
        return sum(entry.size for entry in self.entries)


def _in_memory(folder: Path) -> bool:
    """Return whether a folder is on tmpfs, which stamps a mapped file at its first store alone."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError), Path("/proc/self/mountinfo").open(encoding="utf-8") as mounts:
        # The fields before the dash are of the mount, those after it of the file system.
        kinds = [line.partition(" - ")[2] for line in mounts if line.split()[2] == number]
        return any(kind.startswith("tmpfs ") for kind in kinds)
    return False


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn an error from reading something into a `BundleError` that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise BundleError(
            f"{name} disappeared while it was packed",
            code="file_changed",
            hint="try again when nothing writes to the folder",
        ) from error
    except OSError as error:
        raise BundleError(
            f"{name} cannot be read: {error.strerror}",
            code="file_unreadable",
            hint=f"give yourself permission to read it, or {IGNORE_HINT}",
        ) from error
