"""The checks of `forge doctor`: the database, the store, the workers."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
from forge_schema.database.connections import KEEPALIVE, owns_sessions
from forge_schema.database.current import HEAD, refuse_unfit
from forge_schema.database.pool import Database
from forge_schema.model.quantities import counted, size_text
from forge_schema.model.worker import WorkerInfo
from forge_schema.read.overview import growth, other_store
from forge_schema.storage import open_store
from forge_schema.storage.file_store import FileStore
from forge_schema.storage.probe import probe
from forge_schema.storage.store import ProbeFinding, ProbeVerdict, Store

from forge_client import running
from forge_client.backend import Check, CheckStanding, checked, failed, workers_check
from forge_client.direct import checked_url, translated
from forge_client.errors import ClientError
from forge_client.settings import QueueConnection

STANDINGS = {
    ProbeVerdict.OK: CheckStanding.OK,
    ProbeVerdict.WEAK: CheckStanding.WARN,
    ProbeVerdict.FAILED: CheckStanding.FAIL,
    ProbeVerdict.UNFIT: CheckStanding.FAIL,
}
OFF = {"false", "0", "no", "off", "f", "n"}
UNPREPARED = (
    "set FORGE_PREPARE=false for the server, the sweeper and direct workers: hints about new work"
    " do not pass a pooler, so they would wait for them in vain"
)
TAKES_NO_WRITES = """
    SELECT CASE
        WHEN pg_is_in_recovery() THEN 'it is a standby'
        WHEN current_setting('transaction_read_only')::boolean THEN 'it is held, or its queue moved'
    END
"""
WRITABLE = "name the primary in the URL, or promote this one; see also `forge db move`"
TO_START = "start one with `forge-worker`, or everything with `forge up`"

SOON_DAYS = 30
LOCAL = {"", "localhost", "127.0.0.1", "::1"}
HINT = "have `forge-sweeper --keep-jobs-days` remove old jobs, or enlarge the disk"


def checks(
    connection: QueueConnection,
    workers: Callable[[], list[WorkerInfo]],
    database: Callable[[], Database],
) -> list[Check]:
    """Check each part separately, so that one failure does not hide others."""
    findings = database_checks(connection.database_url)
    findings += _store(connection)
    if all(check.standing is not CheckStanding.FAIL for check in findings):
        hint = to_start(connection.up_dir)
        findings += _checked("workers", lambda: workers_check(workers(), hint))
        findings += _disks(connection, database)
        findings += _another_store(connection, database)
    return findings


def to_start(up_dir: Path | None) -> str:
    """Return how to start a worker; of a `forge up`, why its own did not come."""
    with suppress(OSError, ValueError):
        if up_dir and (trouble := running.read(up_dir).trouble):
            return f"{trouble}; correct that, then `forge down` and `forge up`"
    return TO_START


def _checked(name: str, look: Callable[[], Check]) -> list[Check]:
    return checked(name, translated()(look))


def database_checks(url: str) -> list[Check]:
    """Check that the server takes writes and has this version's tables; a pooler is a finding."""
    findings = _checked("database", lambda: _server(url))
    if findings[0].standing is CheckStanding.OK:
        findings += _checked("tables", lambda: _tables(url))
    if findings[-1].name == "tables" and findings[-1].standing is CheckStanding.OK:
        findings += _checked("connections", lambda: _sessions(url))
    return findings


def _server(url: str) -> Check:
    try:
        with psycopg.connect(checked_url(url), **KEEPALIVE) as session:
            version = session.info.parameter_status("server_version")
            place = f"{session.info.host}/{session.info.dbname}"
            refuse_unfit(session)
            refuses = session.execute(TAKES_NO_WRITES).fetchone()
    except psycopg.OperationalError as error:
        raise ClientError(
            str(error).strip().partition("\n")[0],
            hint="check the URL, that the server runs, and that this machine may reach it",
        ) from error
    if refuses and refuses[0]:
        raise ClientError(
            f"Postgres {version} at {place} takes no writes: {refuses[0]}", hint=WRITABLE
        )
    return Check(
        name="database", standing=CheckStanding.OK, detail=f"Postgres {version} at {place}"
    )


def _tables(url: str) -> Check:
    wanted = HEAD
    with psycopg.connect(url, **KEEPALIVE) as session:
        known = session.execute("SELECT to_regclass('alembic_version') IS NOT NULL").fetchone()
        if known == (True,):
            row = session.execute("SELECT version_num FROM alembic_version").fetchone()
        else:
            row = None
    if row is None:
        return _tables_wrong("the database has no Forge tables")
    if row != (wanted,):
        return _tables_wrong(f"the tables are at revision {row[0]}; this Forge needs {wanted}")
    return Check(name="tables", standing=CheckStanding.OK, detail=f"revision {wanted}")


def _sessions(url: str) -> Check:
    if owns_sessions(url):
        return Check(
            name="connections", standing=CheckStanding.OK, detail="they keep their settings"
        )
    detail = "a pooler in transaction mode is in front of the database"
    if os.environ.get("FORGE_PREPARE", "").lower() in OFF:
        return Check(
            name="connections", standing=CheckStanding.OK, detail=f"{detail}; FORGE_PREPARE=false"
        )
    return Check(name="connections", standing=CheckStanding.WARN, detail=detail, hint=UNPREPARED)


def _tables_wrong(detail: str) -> Check:
    hint = "run `forge db upgrade` on it"
    return Check(name="tables", standing=CheckStanding.FAIL, detail=detail, hint=hint)


def _disks(connection: QueueConnection, database: Callable[[], Database]) -> list[Check]:
    try:
        with translated():
            return list(disks(database(), open_store(connection.store())))
    except ClientError as error:
        # It is a prediction, and everything works without it.
        return [failed("disks", error).model_copy(update={"standing": CheckStanding.WARN})]


def _store(connection: QueueConnection) -> list[Check]:
    try:
        with translated():
            url = connection.store()
            tried = store_checks(probe(url))
    except ClientError as error:
        return [failed("store", error)]
    return [Check(name="store", standing=CheckStanding.OK, detail=f"{url} answers"), *tried]


def _another_store(connection: QueueConnection, database: Callable[[], Database]) -> list[Check]:
    with translated():
        store = open_store(connection.store())
        other = other_store(database(), store.url, store.size)
    if not other:
        return []
    detail = f"the queue keeps its objects in {other}, not in {store.url}"
    hint = "set FORGE_STORE_URL to that one, or copy its objects into this one"
    return [Check(name="store", standing=CheckStanding.WARN, detail=detail, hint=hint)]


def store_checks(findings: Iterable[ProbeFinding]) -> list[Check]:
    """Return what was found about a store, each as a check."""
    return [
        Check(
            name=f"store: {finding.capability}",
            standing=STANDINGS[finding.verdict],
            detail=finding.detail,
            hint=finding.hint,
        )
        for finding in findings
    ]


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
    disks_there = [
        _Disk("database disk", f"{size_text(grown.bytes)} of tables", folder, grown.tables_per_day)
    ]
    if isinstance(store, FileStore):
        disks_there.append(_Disk("store disk", str(store.root), store.root, grown.objects_per_day))
    for disk in disks_there:
        yield _check(disk, disks_there)


def _check(disk: _Disk, all_disks: list[_Disk]) -> Check:
    free, device = _free(disk.folder), _device(disk.folder)
    # What the others add counts too, where they are on the same disk.
    added = [other.per_day for other in all_disks if other is disk or _same(device, other)]
    known = [per_day for per_day in added if per_day is not None]
    room = "its free space cannot be seen from here" if free is None else f"{size_text(free)} free"
    if len(known) < len(added):
        growing = "too young to predict its growth"
        return Check(
            name=disk.name, standing=CheckStanding.OK, detail=_listed(disk.holds, room, growing)
        )
    per_day = sum(known)
    growing = f"grows by about {size_text(per_day)} a day"
    if free is None or per_day <= 0:
        return Check(
            name=disk.name, standing=CheckStanding.OK, detail=_listed(disk.holds, growing, room)
        )
    days = free / per_day
    detail = _listed(disk.holds, growing, room, f"full in about {counted(round(days), 'day')}")
    if days < SOON_DAYS:
        return Check(name=disk.name, standing=CheckStanding.WARN, detail=detail, hint=HINT)
    return Check(name=disk.name, standing=CheckStanding.OK, detail=detail)


def _listed(*parts: str) -> str:
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
