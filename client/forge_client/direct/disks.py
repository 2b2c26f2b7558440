"""The check of `forge doctor` that predicts when the disks of the queue are full."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from forge_schema.database.pool import Database
from forge_schema.model.quantities import counted, size_text
from forge_schema.read.growth import growth
from forge_schema.storage.file_store import FileStore
from forge_schema.storage.store import Store

from forge_client.checks import Check, Standing

SOON_DAYS = 30
LOCAL = {"", "localhost", "127.0.0.1", "::1"}
HINT = "have `forge-sweeper --keep-jobs-days` remove old jobs, or enlarge the disk"


@dataclass(frozen=True)
class _Disk:
    """A disk, and what each day adds to it: None if that is not known yet."""

    name: str
    holds: str
    folder: Path | None
    per_day: float | None


def disks(database: Database, store: Store) -> Iterator[Check]:
    """Predict for the database and for a file store when its disk is full."""
    grown = growth(database)
    folder = Path(grown.folder) if grown.folder and _is_local(database.url) else None
    found = [
        _Disk("database disk", f"{size_text(grown.bytes)} of tables", folder, grown.tables_per_day)
    ]
    if isinstance(store, FileStore):
        found.append(_Disk("store disk", str(store.root), store.root, grown.objects_per_day))
    for disk in found:
        yield _check(disk, found)


def _check(disk: _Disk, all_disks: list[_Disk]) -> Check:
    free, device = _free(disk.folder), _device(disk.folder)
    # What the others add counts too, where they are on the same disk.
    added = [one.per_day for one in all_disks if one is disk or _same(device, one)]
    known = [per_day for per_day in added if per_day is not None]
    room = "its free space cannot be seen from here" if free is None else f"{size_text(free)} free"
    if len(known) < len(added):
        growing = "too young to predict its growth"
        return Check(name=disk.name, standing=Standing.OK, detail=_said(disk.holds, room, growing))
    per_day = sum(known)
    growing = f"grows by about {size_text(per_day)} a day"
    if free is None or per_day <= 0:
        return Check(name=disk.name, standing=Standing.OK, detail=_said(disk.holds, growing, room))
    days = free / per_day
    detail = _said(disk.holds, growing, room, f"full in about {counted(round(days), 'day')}")
    if days < SOON_DAYS:
        return Check(name=disk.name, standing=Standing.WARN, detail=detail, hint=HINT)
    return Check(name=disk.name, standing=Standing.OK, detail=detail)


def _said(*parts: str) -> str:
    return ", ".join(parts)


def _is_local(url: str) -> bool:
    host = str(psycopg.conninfo.conninfo_to_dict(url).get("host") or "")
    return host.startswith("/") or host in LOCAL


def _free(folder: Path | None) -> int | None:
    try:
        return shutil.disk_usage(folder).free if folder else None
    except OSError:
        return None


def _device(folder: Path | None) -> int | None:
    try:
        return folder.stat().st_dev if folder else None
    except OSError:
        return None


def _same(device: int | None, other: _Disk) -> bool:
    return device is not None and _device(other.folder) == device
