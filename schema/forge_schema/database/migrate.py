"""Migrate a database from any earlier release to this one, without failing a request.

A migration that waits for one table while it holds others can wait for a request that waits for it.
After a second Postgres ends one of the two, perhaps the request. So a migration takes all its locks
at once, gives up after a fraction of that, and leaves the tables to the requests for a moment.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from threading import Lock

import psycopg
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, MetaData, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from forge_schema.database import report_role
from forge_schema.database.connections import url_fault
from forge_schema.database.current import HEAD, refuse_unfit, revision_of
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text

# The first is less than `deadlock_timeout`, and what a request may have to wait in vain. The last
# is more, since only after that Postgres ends an autovacuum that is in the way.
WAITS = ("200ms", "200ms", "200ms", "1500ms")
PATIENCE_S = 120.0
PAUSES_S = (0.1, 1.0)
GAVE_WAY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
TABLES = """
    SELECT quote_ident(relname) FROM pg_class
    WHERE relkind IN ('r', 'p') AND NOT relispartition
        AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('job'))
    ORDER BY relname
"""
# Alembic keeps its state in process-wide globals.
ONE_AT_A_TIME = Lock()
MIGRATIONS = Path(__file__).parent / "migrations"


class TablesInUse(ForgeError):
    """There was no moment at which nobody used the tables."""


def take(connection: Connection, lock: Callable[[], None], patience_s: float = PATIENCE_S) -> None:
    """Run `lock` until it gets all that it locks, each time from the beginning.

    Raises:
        TablesInUse: it did not, for as long as `patience_s`.
    """
    until = time.monotonic() + patience_s
    for wait in cycle(WAITS):
        connection.execute(text(f"SET LOCAL lock_timeout = '{wait}'"))
        if _taken(connection, lock):
            return
        if time.monotonic() > until:
            raise TablesInUse(
                f"something has used the tables for {duration_text(patience_s)} without a pause",
                hint="wait for long reports and backups to end, then upgrade again",
            )
        time.sleep(random.uniform(*PAUSES_S))  # noqa: S311 - no secret


def _taken(connection: Connection, lock: Callable[[], None]) -> bool:
    try:
        with connection.begin_nested():
            lock()
    except (DBAPIError, *GAVE_WAY) as error:
        if not isinstance(getattr(error, "orig", error), GAVE_WAY):
            raise
        return False
    return True


def lock_all(connection: Connection) -> None:
    """Lock every table of ours against everybody."""
    if tables := connection.scalars(text(TABLES)).all():
        connection.execute(text(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE"))


class NewerDatabase(ForgeError):
    """A later version has upgraded the database, so this one must leave it as it is."""


class UpgradeDenied(ForgeError):
    """The role may not change the tables, or not make any."""


def engine(url: str) -> Engine:
    """Return an engine without a pool. It connects by libpq's rules for URLs, not SQLAlchemy's."""
    connect = partial(psycopg.connect, url)
    return create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)


def config(url: str, metadata: MetaData | None = None) -> Config:
    """Return Alembic's configuration for a database. Writing a new revision needs `tables`.

    An upgrade does without the models: loading them takes as long as running all revisions.
    """
    settings = Config()
    settings.set_main_option("script_location", str(MIGRATIONS))
    settings.attributes |= {"url": url, "metadata": metadata}
    return settings


def upgrade(url: str, revision: str = "head") -> None:
    """Migrate the database at `url`. Concurrent calls are safe: the second one waits.

    Raises:
        psycopg.OperationalError: the database cannot be reached.
        NewerDatabase: a later version has upgraded it.
        UnfitPostgres: the server's version or the database's encoding is not supported.
        UpgradeDenied: this role may not.
        ValueError: `url` is not a `postgresql://` URL.
    """
    if fault := url_fault(url):
        raise ValueError(fault)
    # Alembic's own error for an unreachable host is a page long.
    with psycopg.connect(url, connect_timeout=10, autocommit=True) as connection:
        refuse_unfit(connection)
        refuse_newer(revision_of(connection))
        report_role.make(connection)
    with ONE_AT_A_TIME, _explaining():
        command.upgrade(config(url), revision)


@contextmanager
def _explaining() -> Iterator[None]:
    try:
        yield
    except (DBAPIError, psycopg.errors.InsufficientPrivilege) as error:
        cause = getattr(error, "orig", error)
        if not isinstance(cause, psycopg.errors.InsufficientPrivilege):
            raise cause from error
        reason = str(cause).partition("\n")[0]
        raise UpgradeDenied(
            f"this role may not upgrade the database: {reason}",
            hint="upgrade as the role that owns the tables; before there are any, as one that owns"
            " the database, or may create in its schema: GRANT CREATE ON SCHEMA public TO …",
        ) from cause


def refuse_newer(revision: str | None) -> None:
    """Refuse a revision that is not among ours; `NewerDatabase` if it is a later one."""
    if revision is not None and revision > HEAD:
        raise NewerDatabase(
            f"the database is at revision {revision}, and this version knows those up to {HEAD}",
            hint="servers and workers of this version work with it; upgrade with the newer version",
        )
