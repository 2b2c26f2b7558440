"""List the entries of a folder's bundle, and check them before packing."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from forge_schema.model.bundles import folded_name, name_fault
from forge_schema.model.quantities import counted

from forge_client.errors import ClientError
from forge_client.project.ignore import ALWAYS, Guard, Ignore, LeftOut, is_always_out

MOST_ENTRIES = 100_000
IGNORE_HINT = "list it in .forgeignore if the job does not need it"


class BundleError(ClientError):
    """The folder cannot be packed into a bundle."""

    code = "bundle_invalid"


@dataclass(frozen=True)
class Entry:
    """A file or folder of the bundle: `name` in the bundle, `path` of its content."""

    name: str
    path: Path
    folder: bool
    executable: bool = False
    size: int = 0
    mtime_ns: int = 0


@dataclass(frozen=True)
class Listing:
    """The entries in the order of the bundle, each after its parent folder.

    `left_out` are the paths left out although no ignore file names them; `unmatched` are the
    patterns of `include` that matched nothing.
    """

    root: Path
    entries: tuple[Entry, ...]
    left_out: tuple[LeftOut, ...] = ()
    unmatched: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Entry, ...]:
        """The entries that are files."""
        return tuple(entry for entry in self.entries if not entry.folder)

    @property
    def total_bytes(self) -> int:
        """The size of all files, in bytes, before compression."""
        return sum(entry.size for entry in self.entries)


def scan(folder: Path, *, include: Sequence[str] = ()) -> Listing:
    """List the content of a bundle of `folder`.

    Links within the folder are replaced by their targets. A folder is listed if it is empty or
    something in it is listed.

    Args:
        folder: the folder to list.
        include: patterns as in .gitignore, of files to list that would otherwise be left out.

    Raises:
        BundleError: there is no such folder, or something in it cannot be packed.
    """
    if not folder.exists():
        raise BundleError(
            f"folder {folder} does not exist", code="folder_missing", hint="check the path"
        )
    if not folder.is_dir():
        raise BundleError(
            f"{folder} is not a folder",
            code="not_a_folder",
            hint="the folder comes first: forge submit . -- python train.py",
        )
    root = folder.resolve()
    found = _Scan(root, Guard(include))
    entries = tuple(found.run())
    return Listing(root, entries, tuple(found.left_out), found.guard.unmatched)


@dataclass
class _Scan:
    root: Path
    guard: Guard
    left_out: list[LeftOut] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)
    open_folders: list[tuple[int, int]] = field(default_factory=list)

    def run(self) -> list[Entry]:
        return self._folder(self.root, "", Ignore())[0]

    def _folder(self, path: Path, name: str, ignore: Ignore) -> tuple[list[Entry], bool]:
        """List a folder's content, and return whether the folder is really empty."""
        with readable(name or "."), self._entered(path, name):
            ignore = ignore.within(path, name)
            children = sorted(entry.name for entry in path.iterdir())
            inside = [e for child in children for e in self._child(path, name, child, ignore)]
            return inside, not children

    def _child(self, parent: Path, above: str, child: str, ignore: Ignore) -> Iterator[Entry]:
        path, name = parent / child, f"{above}/{child}" if above else child
        if self._stays_out(path, name, ignore):
            return
        self._admit(name)
        if path.is_symlink():
            path = self._followed(path, name)
            if self._stays_out(path, name, Ignore(), as_what=path.relative_to(self.root)):
                return
        with readable(name):
            found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            inside, empty = self._folder(path, name, ignore)
            if inside or empty:
                yield Entry(name, path, folder=True)
                yield from inside
        elif stat.S_ISREG(found.st_mode):
            yield _file(name, path, found)
        else:
            raise BundleError(f"{name} is neither a file nor a folder", hint=IGNORE_HINT)

    def _stays_out(
        self, path: Path, name: str, ignore: Ignore, *, as_what: Path | None = None
    ) -> bool:
        folder = path.is_dir()
        if is_always_out(name):
            return True
        if self.guard.includes(name, folder=folder):
            return False
        if ignore.excludes(name, folder=folder):
            return True
        with readable(name):
            why = self.guard.reason((as_what or Path(name)).as_posix(), path)
        if why:
            self.left_out.append(LeftOut(f"{name}/" if folder else name, why))
        return why is not None

    def _admit(self, name: str) -> None:
        if fault := name_fault(name):
            raise BundleError(f"{name!r} {fault}", code="name_refused", hint=IGNORE_HINT)
        twin = self.seen.setdefault(folded_name(name), name)
        if twin != name:
            raise BundleError(
                f"{twin} and {name} are the same name on some file systems",
                code="name_refused",
                hint="rename one of them, or list one in .forgeignore",
            )
        if len(self.seen) > MOST_ENTRIES:
            raise BundleError(
                f"{self.root} contains more than {counted(MOST_ENTRIES, 'file')} and folders",
                code="bundle_too_large",
                hint="list data and build folders in .forgeignore",
            )

    def _followed(self, path: Path, name: str) -> Path:
        target = Path(os.path.realpath(path))  # unlike resolve(), it accepts circular links
        if not target.is_relative_to(self.root):
            raise BundleError(
                f"{name} is a link to {target}, outside {self.root}",
                code="link_leaves_folder",
                hint=f"replace it with a copy, or {IGNORE_HINT}",
            )
        if not target.exists():
            raise BundleError(f"{name} is a broken link", code="link_broken", hint=IGNORE_HINT)
        if left_out := ALWAYS.intersection(target.relative_to(self.root).parts):
            raise BundleError(
                f"{name} is a link into {min(left_out)}, which is never packed",
                code="link_leaves_folder",
                hint=IGNORE_HINT,
            )
        return target

    @contextmanager
    def _entered(self, path: Path, name: str) -> Iterator[None]:
        found = path.stat()
        identity = (found.st_dev, found.st_ino)
        if identity in self.open_folders:
            raise BundleError(
                f"{name} is a circular link",
                code="link_circular",
                hint=IGNORE_HINT,
            )
        self.open_folders.append(identity)
        try:
            yield
        finally:
            self.open_folders.pop()


def _file(name: str, path: Path, found: os.stat_result) -> Entry:
    # Only the owner's bit, so that the umask of a checkout does not change the bundle.
    executable = bool(found.st_mode & stat.S_IXUSR)
    return Entry(
        name,
        path,
        folder=False,
        executable=executable,
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
    )


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
