"""Migrate a database from any earlier release to this one."""

from pathlib import Path
from threading import Lock

import psycopg
from alembic import command
from alembic.config import Config
from sqlalchemy import MetaData

from forge_schema.database import report_role
from forge_schema.database.current import HEAD, refuse_old, revision_of
from forge_schema.model.errors import ForgeError

# Alembic keeps its state in process-wide globals.
ONE_AT_A_TIME = Lock()
MIGRATIONS = Path(__file__).parent / "migrations"


class NewerDatabase(ForgeError):
    """A later version has upgraded the database, so this one must leave it as it is."""

    code = "newer_database"


def sqlalchemy_url(url: str) -> str:
    """Convert a libpq URL to SQLAlchemy's form, with psycopg 3 as the driver."""
    scheme, _, rest = url.partition("://")
    if scheme not in {"postgresql", "postgres"}:
        msg = f"not a postgresql:// URL: {scheme}://…"
        raise ValueError(msg)
    return f"postgresql+psycopg://{rest}"


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
        OldPostgres: the server's version is not supported.
        ValueError: `url` is not a `postgresql://` URL.
    """
    sqlalchemy_url(url)
    # Alembic's own error for an unreachable host is a page long.
    with psycopg.connect(url, connect_timeout=10, autocommit=True) as connection:
        refuse_old(connection.info.server_version)
        refuse_newer(revision_of(connection))
        report_role.make(connection)
    with ONE_AT_A_TIME:
        command.upgrade(config(url), revision)


def refuse_newer(found: str | None) -> None:
    """Refuse a revision that is not among ours.

    Raises:
        NewerDatabase: it is a later one.
    """
    if found is not None and found > HEAD:
        raise NewerDatabase(
            f"the database is at revision {found}, and this version knows those up to {HEAD}",
            hint="servers and workers of this version work with it; upgrade with the newer version",
        )
