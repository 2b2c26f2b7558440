"""The checks of `forge doctor`: the database, the store, the workers."""

import os
from collections.abc import Callable, Iterable

import psycopg
from forge_schema.database.current import HEAD, refuse_old
from forge_schema.database.pool import Database
from forge_schema.database.start import KEEPALIVE, owns_sessions
from forge_schema.model.worker import WorkerInfo
from forge_schema.storage import open_store
from forge_schema.storage.probe import Finding, Verdict, probe

from forge_client.checks import Check, Standing, checked, failed, workers_check
from forge_client.direct.database_url import checked_url
from forge_client.direct.disks import disks
from forge_client.direct.translation import translated
from forge_client.errors import ClientError
from forge_client.settings import Connection

STANDINGS = {
    Verdict.OK: Standing.OK,
    Verdict.WEAK: Standing.WARN,
    Verdict.FAILED: Standing.FAIL,
    Verdict.UNFIT: Standing.FAIL,
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


def checks(
    connection: Connection,
    workers: Callable[[], list[WorkerInfo]],
    database: Callable[[], Database],
) -> list[Check]:
    """Check each part separately, so that one failure does not hide others."""
    found = database_checks(connection.database_url)
    found += _store(connection)
    if all(check.standing is not Standing.FAIL for check in found):
        found += _checked("workers", lambda: workers_check(workers(), TO_START))
        found += _disks(connection, database)
    return found


def _checked(name: str, look: Callable[[], Check]) -> list[Check]:
    return checked(name, translated()(look))


def database_checks(url: str) -> list[Check]:
    """Check that the server takes writes and has this version's tables; a pooler is a finding."""
    found = _checked("database", lambda: _server(url))
    if found[0].standing is Standing.OK:
        found += _checked("tables", lambda: _tables(url))
    if found[-1].name == "tables" and found[-1].standing is Standing.OK:
        found += _checked("connections", lambda: _sessions(url))
    return found


def _server(url: str) -> Check:
    try:
        with psycopg.connect(checked_url(url), **KEEPALIVE) as session:
            version = session.info.parameter_status("server_version")
            place = f"{session.info.host}/{session.info.dbname}"
            refuse_old(session.info.server_version)
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
    return Check(name="database", standing=Standing.OK, detail=f"Postgres {version} at {place}")


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
    return Check(name="tables", standing=Standing.OK, detail=f"revision {wanted}")


def _sessions(url: str) -> Check:
    if owns_sessions(url):
        return Check(name="connections", standing=Standing.OK, detail="they keep their settings")
    detail = "a pooler in transaction mode is in front of the database"
    if os.environ.get("FORGE_PREPARE", "").lower() in OFF:
        return Check(
            name="connections", standing=Standing.OK, detail=f"{detail}; FORGE_PREPARE=false"
        )
    return Check(name="connections", standing=Standing.WARN, detail=detail, hint=UNPREPARED)


def _tables_wrong(detail: str) -> Check:
    hint = "run `forge db upgrade` on it"
    return Check(name="tables", standing=Standing.FAIL, detail=detail, hint=hint)


def _disks(connection: Connection, database: Callable[[], Database]) -> list[Check]:
    try:
        with translated():
            return list(disks(database(), open_store(connection.store())))
    except ClientError as error:
        # It is a prediction, and everything works without it.
        return [failed("disks", error).model_copy(update={"standing": Standing.WARN})]


def _store(connection: Connection) -> list[Check]:
    try:
        with translated():
            url = connection.store()
            tried = store_checks(probe(url))
    except ClientError as error:
        return [failed("store", error)]
    return [Check(name="store", standing=Standing.OK, detail=f"{url} answers"), *tried]


def store_checks(found: Iterable[Finding]) -> list[Check]:
    """Return what was found about a store, each as a check."""
    return [
        Check(
            name=f"store: {one.capability}",
            standing=STANDINGS[one.verdict],
            detail=one.detail,
            hint=one.hint,
        )
        for one in found
    ]
