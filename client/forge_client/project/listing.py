"""The entries of a folder's bundle."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from forge_client.errors import ClientError
from forge_client.project.ignore import LeftOut

IGNORE_HINT = "list it in .forgeignore if the job does not need it"


class BundleError(ClientError):
    """The folder cannot be packed into a bundle."""

    code = "bundle_invalid"


@dataclass(frozen=True)
class BundleEntry:
    """A file or folder of the bundle: `name` in the bundle, `path` of its content.

    With a `link`, it is a link with this text, to a file or to a `folder`.
    """

    name: str
    path: Path
    folder: bool
    executable: bool = False
    size: int = 0
    mtime_ns: int = 0
    link: str | None = None


@dataclass(frozen=True)
class Listing:
    """The entries, each after its parent folder.

    `left_out` are the paths left out although no ignore file names them, and `ignored` those that
    one names; `unmatched` are the patterns of `include` that matched nothing. The `faults` are the
    reasons why git could not be asked which files are the project's.
    """

    root: Path
    entries: tuple[BundleEntry, ...]
    left_out: tuple[LeftOut, ...] = ()
    unmatched: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def links_last(self) -> list[BundleEntry]:
        """The entries as a bundle has them: whoever unpacks it writes nothing through a link."""
        return sorted(self.entries, key=lambda one: one.link is not None)

    @property
    def files(self) -> tuple[BundleEntry, ...]:
        """The entries that are files, or links to files."""
        return tuple(entry for entry in self.entries if not entry.folder)

    @property
    def total_bytes(self) -> int:
        """The size of all files, in bytes, before compression."""
        return sum(entry.size for entry in self.entries)


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
