"""The checks of `forge doctor`: the database, the store, the workers."""

from collections.abc import Callable, Iterator

import psycopg
from forge_schema.database.current import HEAD
from forge_schema.database.pool import Database
from forge_schema.database.start import KEEPALIVE
from forge_schema.model.worker import WorkerInfo
from forge_schema.storage import open_store

from forge_client.checks import Check, Standing, checked, failed, workers_check
from forge_client.direct.database_url import checked_url
from forge_client.direct.disks import disks
from forge_client.direct.translation import translated
from forge_client.errors import ClientError
from forge_client.settings import Connection

TO_START = "start one with `forge-worker`, or everything with `forge up`"


def checks(
    connection: Connection,
    workers: Callable[[], list[WorkerInfo]],
    database: Callable[[], Database],
) -> list[Check]:
    """Check each part separately, so that one failure does not hide others."""
    found = list(_database(connection))
    found += _checked("store", lambda: _store(connection))
    if all(check.standing is not Standing.FAIL for check in found):
        found += _checked("workers", lambda: workers_check(workers(), TO_START))
        found += _disks(connection, database)
    return found


def _checked(name: str, look: Callable[[], Check]) -> list[Check]:
    return checked(name, translated()(look))


def _database(connection: Connection) -> Iterator[Check]:
    reached = _checked("database", lambda: _server(connection.database_url))
    yield from reached
    if reached[0].standing is Standing.OK:
        yield from _checked("tables", lambda: _tables(connection.database_url))


def _server(url: str) -> Check:
    try:
        with psycopg.connect(checked_url(url), **KEEPALIVE) as probe:
            version = probe.info.parameter_status("server_version")
            place = f"{probe.info.host}/{probe.info.dbname}"
    except psycopg.OperationalError as error:
        raise ClientError(
            str(error).strip().partition("\n")[0],
            hint="check the URL, that the server runs, and that this machine may reach it",
        ) from error
    return Check(name="database", standing=Standing.OK, detail=f"Postgres {version} at {place}")


def _tables(url: str) -> Check:
    wanted = HEAD
    with psycopg.connect(url, **KEEPALIVE) as probe:
        known = probe.execute("SELECT to_regclass('alembic_version') IS NOT NULL").fetchone()
        if known == (True,):
            row = probe.execute("SELECT version_num FROM alembic_version").fetchone()
        else:
            row = None
    if row is None:
        return _tables_wrong("the database has no Forge tables")
    if row != (wanted,):
        return _tables_wrong(f"the tables are at revision {row[0]}; this Forge needs {wanted}")
    return Check(name="tables", standing=Standing.OK, detail=f"revision {wanted}")


def _disks(connection: Connection, database: Callable[[], Database]) -> list[Check]:
    try:
        with translated():
            return list(disks(database(), open_store(connection.store())))
    except ClientError as error:
        # It is a prediction, and everything works without it.
        return [failed("disks", error).model_copy(update={"standing": Standing.WARN})]


def _tables_wrong(detail: str) -> Check:
    hint = "run `forge db upgrade` on it"
    return Check(name="tables", standing=Standing.FAIL, detail=detail, hint=hint)


def _store(connection: Connection) -> Check:
    store = open_store(connection.store())
    store.check()
    return Check(name="store", standing=Standing.OK, detail=f"{store.url} can be written")
