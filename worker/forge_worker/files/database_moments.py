"""Copy a database while it is in use, as a kill at one moment would leave it.

Every database recovers from the kill of its program. No lock is taken and nothing is opened for
writing, so its program is not disturbed: whatever changes during a copy makes another try
necessary.
"""

import fcntl
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from forge_worker.files.groups import ROOT
from forge_worker.files.rest import TICK_NS, outside_its_tick
from forge_worker.files.safe_files import Status, Where, copy, entries, opened, status_in

SQLITE, DUCKDB = b"SQLite format 3\0", b"DUCK"
# Of SQLite's header: whether it has a log beside it, and the locks of a process that writes.
WRITE_VERSION, WITH_LOG = 18, 2
PENDING, SHARED, LOCKS = 0x40000000, 0x40000002, 510
JOURNAL = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
HEAD_BYTES = 100
PAGE_BYTES = 512
# How long to try again while it changes, and how often in any case.
TRY_NS, LEAST_TRIES, PAUSE_S = 2_000_000_000, 3, 0.01
FLOCK = struct.Struct("hhqqi4x")
NOTHING: tuple[None, bytes] = (None, b"")

LMDB_MAGIC, LMDB_VERSION, LMDB_LENGTH = 0xBEEFC0DE, 1, 152
# After the head of a page: magic, version, address, size of the map, size of a page …
LMDB_META = struct.Struct("<16xIIQQI92xQQ")
LMDB_PAGES = range(256, 65536 + 1)
LMDB_LOOKS = 3

Moment = dict[str, tuple[Status, int, Path]]
"""The status and size of each file at one moment, and its copy."""


@dataclass(frozen=True, slots=True)
class DatabaseFiles:
    """The files of a database: `still` as long as it is not written to, `growing` with each change.

    `locks` tells whether its program locks it while it writes to it; `folder` is its own. `logged`
    is one whose first file is only written to from its log.
    """

    kind: str
    still: tuple[str, ...]
    growing: tuple[str, ...] = ()
    locks: bool = False
    folder: str = ""
    logged: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        return self.still + self.growing


@dataclass(frozen=True, slots=True)
class _State:
    """What a database's files are, apart from their content."""

    statuses: dict[str, tuple[Status, bytes]]
    names: frozenset[str]
    sure: bool


def recognised(where: Where, path: str, size: int) -> DatabaseFiles | None:
    """Return the database of which a file is the main one, by its first bytes.

    Raises:
        OSError: it cannot be read.
    """
    if size < PAGE_BYTES or size % PAGE_BYTES:
        return None
    with opened(*where(path)) as file:
        head = os.pread(file.fileno(), HEAD_BYTES, 0)
        if head.startswith(SQLITE):
            with_log = head[WRITE_VERSION] == WITH_LOG
            still = (path, f"{path}-journal")
            log = (f"{path}-wal",)
            return DatabaseFiles("sqlite", still, log, locks=not with_log, logged=with_log)
        if head[8:12] == DUCKDB:
            return DatabaseFiles("duckdb", (path,), (f"{path}.wal",))
        return DatabaseFiles("lmdb", (path,)) if newest_lmdb(file) else None


def of_folder(folder: str, names: AbstractSet[str]) -> DatabaseFiles:
    """Return the database that a folder with these paths is: LevelDB or RocksDB."""
    growing = {path for path in names if path.endswith((".log", "/LOG")) or path == "LOG"}
    return DatabaseFiles("rocksdb", tuple(names - growing), tuple(growing), folder=folder)


def in_folder(folder: str, name: str) -> str:
    """Return the path of a name in a folder, which may be the root."""
    return name if folder == ROOT else f"{folder}/{name}"


def taken(
    where: Where, base: DatabaseFiles, place: Callable[[], Path], go_on: Callable[[], None]
) -> Moment | None:
    """Copy a database; None if it changed during every try.

    Args:
        where: returns where a file is.
        base: the database.
        place: returns the path of another copy.
        go_on: is called before each piece; what it raises ends the copy.

    Raises:
        OSError: a file cannot be read, or this machine's disk is full or faulty.
    """
    until_ns, tries = time.monotonic_ns() + TRY_NS, 0
    while tries < LEAST_TRIES or time.monotonic_ns() < until_ns:
        tries += 1
        try:
            copied = _lmdb if base.kind == "lmdb" else _copied
            moment = copied(where, base, place, go_on)
        except FileNotFoundError:
            moment = None
        if moment is not None:
            return moment
        time.sleep(PAUSE_S if tries % 2 else TICK_NS / 1e9)
    return None


def _lmdb(
    where: Where, base: DatabaseFiles, place: Callable[[], Path], go_on: Callable[[], None]
) -> Moment | None:
    into = place()
    with opened(*where(base.still[0])) as file:
        status = status_in(file)
        size = copied_lmdb(file, into, go_on)
    return None if size is None else {base.still[0]: (status, size, into)}


def _copied(
    where: Where, base: DatabaseFiles, place: Callable[[], Path], go_on: Callable[[], None]
) -> Moment | None:
    before = _state(where, base)
    if not before.sure or base.still[0] not in before.statuses:
        return None
    moment: Moment = {}
    for path in base.paths:
        if path in before.statuses:
            with opened(*where(path)) as file:
                status, into = status_in(file), place()
                copy(file, into, status[0], go_on)
            moment[path] = status, status[0], into
    return moment if _same(before, _state(where, base), base) else None


def _same(before: _State, after: _State, base: DatabaseFiles) -> bool:
    """Tell whether a database is as it was, apart from the growth of its logs."""
    first, last = before.statuses, after.statuses
    if not after.sure or before.names != after.names or first.keys() != last.keys():
        return False
    still = all(first[path] == last[path] for path in _still(base, first))
    return still and all(_grew(first[path], last[path]) for path in base.growing if path in first)


def _still(base: DatabaseFiles, statuses: dict[str, tuple[Status, bytes]]) -> list[str]:
    """Return the files that may not change during a copy.

    What is written to the first one from its log is in the log's copy, which is made later, unless
    the log began anew: whoever opens the copies sees the log's pages and not the half-written ones.
    """
    may_not = base.still
    if base.logged and all(statuses.get(path, NOTHING)[1] for path in base.growing):
        may_not = base.still[1:]
    return [path for path in may_not if path in statuses]


def _grew(before: tuple[Status, bytes], after: tuple[Status, bytes]) -> bool:
    (size, _, inode), head = before
    (later, _, same), now = after
    return same == inode and later >= size and now[: len(head)] == head


def _state(where: Where, base: DatabaseFiles) -> _State:
    statuses = dict(_looked_at(where, base.paths))
    clear = all(outside_its_tick(statuses[path][0]) for path in _still(base, statuses))
    return _State(statuses, _names(where, base), clear or (base.locks and _unlocked(where, base)))


def _looked_at(where: Where, paths: tuple[str, ...]) -> Iterator[tuple[str, tuple[Status, bytes]]]:
    for path in paths:
        try:
            with opened(*where(path)) as file:
                # SQLite's counts its changes; that of a log changes when the log begins anew.
                yield path, (status_in(file), os.pread(file.fileno(), HEAD_BYTES, 0))
        except FileNotFoundError:
            continue


def _names(where: Where, base: DatabaseFiles) -> frozenset[str]:
    if not base.folder:
        return frozenset()
    root, inside = where(in_folder(base.folder, "CURRENT"))
    return frozenset(name for name, _ in entries(root, tuple(inside.split("/")[:-1])))


def _unlocked(where: Where, base: DatabaseFiles) -> bool:
    """Tell whether no process is writing to a database in place, by its locks and its journal.

    If it had been written to since, its header would have counted that.
    """
    if sys.platform != "linux":
        return False
    with opened(*where(base.still[0])) as file:
        if _locked(file, PENDING, 1) or _locked(file, SHARED, LOCKS):
            return False
    try:
        with opened(*where(base.still[1])) as journal:
            return os.pread(journal.fileno(), len(JOURNAL), 0) != JOURNAL
    except FileNotFoundError:
        return True


def _locked(file: BinaryIO, start: int, length: int) -> bool:
    asked = FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, start, length, 0)
    return bool(FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)


@dataclass(frozen=True, slots=True)
class LmdbState:
    """The newest state: its number, its last page, and the two pages at the beginning.

    These describe the two newest states. A change is written to pages that neither of them uses,
    and pages that a change has freed are used again by the third one after it at the earliest. So
    the newest state stays whole until two more were committed, and a third one begins.
    """

    number: int
    pages: int
    page_bytes: int
    beginning: bytes

    @property
    def size(self) -> int:
        return self.pages * self.page_bytes


def newest_lmdb(file: BinaryIO) -> LmdbState | None:
    """Return the newest state of a database; None if the file is none."""
    for _ in range(LMDB_LOOKS):
        if (state := _lmdb_state(file)) is None or state == _lmdb_state(file):
            return state
    return None


def copied_lmdb(file: BinaryIO, into: Path, go_on: Callable[[], None]) -> int | None:
    """Copy the newest state and return its size; None if it was written over meanwhile."""
    state = newest_lmdb(file)
    if state is None:
        return None
    copy(file, into, state.size, go_on)
    now = newest_lmdb(file)
    if now is None or now.number > state.number + 1:
        return None
    with into.open("r+b") as target:
        target.write(state.beginning)
        target.truncate(state.size)
    return state.size


def _lmdb_state(file: BinaryIO) -> LmdbState | None:
    head = os.pread(file.fileno(), LMDB_LENGTH, 0)
    if len(head) < LMDB_LENGTH:
        return None
    size = LMDB_META.unpack(head)[4]
    if size not in LMDB_PAGES:
        return None
    beginning = os.pread(file.fileno(), 2 * size, 0)
    metas = [LMDB_META.unpack_from(beginning.ljust(2 * size, b"\0"), place) for place in (0, size)]
    if any((magic, version) != (LMDB_MAGIC, LMDB_VERSION) for magic, version, *_ in metas):
        return None
    last, number = max((meta[5:] for meta in metas), key=lambda meta: meta[1])
    return LmdbState(number, last + 1, size, beginning)
