"""Which files belong together, by their names: one of them of another age makes all useless."""

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import PurePosixPath

from forge_schema.storage.manifest import Entry

from forge_worker.files.copies import Copies, FileShape
from forge_worker.files.rest import OPEN_QUIET_NS
from forge_worker.files.safe_files import Listing, Where, status_of

# A database beside its logs: SQLite, DuckDB.
COMPANIONS = ("-wal", "-journal", "-shm", ".wal", ".wal.checkpoint", ".wal.recovery")
# A folder with such a file is one whole: LevelDB and RocksDB, Berkeley DB …
CURRENT, ENVIRONMENT = "CURRENT", "__db.001"
MANIFEST = "MANIFEST-"
# … and so is everything below one with these: zarr.
TREES = frozenset(("zarr.json", ".zarray", ".zgroup"))
# Data, and what tells where to find something in them, under one name.
ARRAYS = {"arr", "array", "h5", "hdf5", "mmap", "memmap", "npy", "npz", "raw", "safetensors"}
DATA = ARRAYS | {"arrow", "bin", "dat", "data", "faiss", "mds", "pag", "vec"}
INDEXES = {"bak", "dir", "hdr", "idx", "index", "json", "meta", "offset", "offsets", "pkl", "toc"}
# One of several parts: TensorFlow's, those of Hugging Face, and of PyTorch's ranks.
PART = re.compile(r"(.+)\.data-\d{5}-of-\d{5}|(.+)-\d{5}-of-\d{5}(?:\.\w+)?|(.*\.distcp)")
PARTS_INDEX = re.compile(r"(.+)\.\w+\.index\.json")
FOLDER_INDEX, METADATA = "index.json", "/.metadata"
ROOT, FOLDER = ".", "/"

Groups = dict[str, str]
"""The name of the group of each file that belongs to one."""

# How long after the last write to one of several files that belong together all of them rest.
PAIR_NS = 500_000_000


class Together:
    """Groups of files, remembered as long as the names stay the same."""

    def __init__(self) -> None:
        self._names: Collection[str] = ()
        self._groups: Groups = {}
        self._members: dict[str, set[str]] = {}

    def look(self, names: Collection[str]) -> None:
        """Find the groups among these paths."""
        if names == self._names:
            return
        self._names, self._groups, self._members = set(names), groups(names), defaultdict(set)
        for path, group in self._groups.items():
            self._members[group].add(path)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def group(self, path: str) -> str | None:
        """Return the group of a file; None if it stands alone."""
        return self._groups.get(path)

    def with_all(self, paths: Iterable[str]) -> set[str]:
        """Return these paths, and all that belong with one of them."""
        joined = set(paths)
        for group in {self._groups[path] for path in joined if path in self._groups}:
            joined |= self._members[group]
        return joined


def fleeting(path: str, names: Collection[str]) -> bool:
    """Tell whether a file is only of use to the processes that have a database open.

    They make it anew when there is none.
    """
    if path.endswith("-shm"):
        return path.removesuffix("-shm") in names
    if path.endswith(".mdb-lock"):
        return path.removesuffix("-lock") in names
    return path.endswith("lock.mdb") and f"{path.removesuffix('lock.mdb')}data.mdb" in names


def groups(names: Collection[str]) -> Groups:
    """Return the groups of at least two files among these paths."""
    marked, bases = set(_marked(names)), _bases(names)
    members: dict[str, set[str]] = defaultdict(set)
    indexed: set[str] = set()
    for path in names:
        if marked and (whole := _above(path, marked)):
            group, index = f"{whole}{FOLDER}", True
        elif path in bases:
            group, index = bases[path], True
        else:
            group, index = _stem(path)
        if group:
            members[group].add(path)
            if index:
                indexed.add(group)
    for group in [path for path in indexed if path.endswith(f"/{FOLDER_INDEX}")]:
        members[group] |= _data_beside(group, members)
    joined = {group: members[group] for group in indexed if len(members[group]) > 1}
    return {path: group for group, paths in joined.items() for path in paths}


def _marked(names: Collection[str]) -> Iterator[str]:
    for path in names:
        if path.endswith((CURRENT, ENVIRONMENT, *TREES)):
            folder, _, name = path.rpartition("/")
            if name in {ENVIRONMENT, *TREES} or (name == CURRENT and _has(names, folder, MANIFEST)):
                yield folder or ROOT


def _has(names: Collection[str], folder: str, beginning: str) -> bool:
    place = f"{folder}/{beginning}" if folder else beginning
    return any(path.startswith(place) for path in names)


def _above(path: str, marked: set[str]) -> str:
    """Return the topmost folder above a path that is one whole."""
    if ROOT in marked:
        return ROOT
    place = -1
    while (place := path.find("/", place + 1)) >= 0:
        if path[:place] in marked:
            return path[:place]
    return ""


def _bases(names: Collection[str]) -> Groups:
    """Return the database of each log, and of each database that has one."""
    logs = {}
    for path in names:
        if path.endswith(COMPANIONS):
            end = max((ending for ending in COMPANIONS if path.endswith(ending)), key=len)
            if (base := path.removesuffix(end)) in names:
                logs[path] = base
    return logs | {base: base for base in logs.values()}


def _stem(path: str) -> tuple[str, bool]:
    """Return what a file shares with those that belong to it, and whether this one says so.

    The parts of one whole need no index to belong together.
    """
    stem, _, suffix = path.rpartition(".")
    if suffix in INDEXES:
        if suffix == "json" and path.endswith(FOLDER_INDEX):
            folder, slash, name = path.rpartition("/")
            if name == FOLDER_INDEX:
                return f"{folder}/{FOLDER_INDEX}", True
            index = PARTS_INDEX.fullmatch(name)
            return (f"{folder}{slash}{index[1]}", True) if index else (stem, True)
        return stem, True
    if suffix == "distcp" or f"/{path}".endswith(METADATA):
        return f"{path.rpartition('/')[0]}/{METADATA}", True
    if "-of-" in path and (part := PART.fullmatch(path)):
        return part[1] or part[2], True
    return (stem, False) if suffix in DATA else ("", False)


def _data_beside(index: str, members: dict[str, set[str]]) -> set[str]:
    """Return the files of data in the folder of an index, whatever they are called."""
    folder = index.removesuffix(FOLDER_INDEX).strip("/")
    return {
        path
        for paths in members.values()
        for path in paths
        if path.rpartition("/")[0] == folder and PurePosixPath(path).suffix[1:] in DATA
    }


class ReplacedFolders:
    """Folders that a program replaces as a whole: by their inodes since the first look."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._inodes: dict[str, int] = {}

    def begin(self) -> None:
        """Forget all."""
        self._inodes = {}

    def replaced(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the beginning of the path of each folder of these that is another one by now."""
        now = {
            folder: self._inode(folder)
            for folder in {folder for path in paths for folder in above(path)}
        }
        replaced = [
            folder for folder in now if self._inodes.get(folder, now[folder]) != now[folder]
        ]
        self._inodes = now | self._inodes
        return tuple(f"{folder}/" for folder in replaced)

    def accept(self, replaced: Iterable[str]) -> None:
        """Go by these folders from now on."""
        for folder in replaced:
            self._inodes[folder.removesuffix("/")] = self._inode(folder.removesuffix("/"))

    def _inode(self, folder: str) -> int:
        root, place = self._where(folder)
        status = status_of(root, tuple(place.split("/")))
        return 0 if status is None else status.st_ino


def above(path: str) -> list[str]:
    """Return the folders above a path."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def uneven(
    together: Together, before: Listing, now: Listing, copies: Copies, absent: AbstractSet[str]
) -> set[str]:
    """Return files of groups of which not all were there and still at the same moment.

    A database in use was copied as it was at one.
    """
    paths = [path for path in before.keys() | now.keys() if together.group(path) is not None]
    moments = {together.group(p) for p, copy in copies.items() if copy.shape is FileShape.MOMENT}
    return {
        path
        for path in paths
        if path not in absent
        and together.group(path) not in moments
        and _moved(path, before, now, copies)
    }


def young(together: Together, copies: Copies) -> set[str]:
    """Return files of groups that were just written: the others may follow.

    Those of a database in use were copied as they were at one moment.
    """
    now_ns = time.time_ns()
    return {
        path
        for path, copy in copies.items()
        if copy.shape is not FileShape.MOMENT
        and together.group(path) is not None
        and abs(now_ns - copy.status[1]) < PAIR_NS
    }


def mixed(
    together: Together, listing: Listing, copies: Copies, stored: Mapping[str, Entry], now_ns: int
) -> set[str]:
    """Return a part of each whole whose parts seem to be of two saves, though each is complete.

    The program saves one after the other, or was killed before the next. Whoever renews only some
    of them has done so when it has written to none for long.
    """
    wholes = {
        together.group(path): path
        for path, copy in copies.items()
        if PART.fullmatch(path) and abs(now_ns - copy.status[1]) < OPEN_QUIET_NS
    }
    return {
        part
        for part in wholes.values()
        if _of_two_saves(together.with_all([part]) & listing.keys(), listing, stored)
    }


def _of_two_saves(paths: AbstractSet[str], listing: Listing, stored: Mapping[str, Entry]) -> bool:
    """Tell whether some parts are as they are stored and others not, or an index lies between.

    Without an index, they may be written one after the other, each for long: data that is prepared.
    """
    parts = {path for path in paths if PART.fullmatch(path)}
    if parts == paths and not parts <= stored.keys():
        return False
    same = {
        (stored[path].size, stored[path].mtime_ns) == listing[path][:2]
        for path in parts & stored.keys()
    }
    index_ns = max((listing[path][1] for path in paths - parts), default=0)
    sides = {(at_ns > index_ns) - (at_ns < index_ns) for at_ns in (listing[p][1] for p in parts)}
    return len(same) > 1 or (index_ns > 0 and {-1, 1} <= sides)


def _moved(path: str, before: Listing, now: Listing, copies: Copies) -> bool:
    copy = copies.get(path)
    if copy is None:
        return before.get(path) != now.get(path)
    return copy.shape is FileShape.GROWN or (copy.sound and copy.status != now.get(path))
