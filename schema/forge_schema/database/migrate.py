"""Migrations: bring a database of any earlier version to this one."""

from pathlib import Path
from threading import Lock

import psycopg
from alembic import command
from alembic.config import Config
from sqlalchemy import MetaData

from forge_schema.database import report_role

# Alembic keeps what it is doing in globals of the process.
ONE_AT_A_TIME = Lock()
MIGRATIONS = Path(__file__).parent / "migrations"


def sqlalchemy_url(url: str) -> str:
    """Return a libpq URL as SQLAlchemy wants it, with psycopg 3 as its driver."""
    scheme, _, rest = url.partition("://")
    if scheme not in {"postgresql", "postgres"}:
        msg = f"not a postgresql:// URL: {scheme}://…"
        raise ValueError(msg)
    return f"postgresql+psycopg://{rest}"


def config(url: str, metadata: MetaData | None = None) -> Config:
    """Return Alembic's configuration for a database; a new revision needs the tables it is to make.

    Nothing else loads the models, which takes as long as all revisions do.
    """
    settings = Config()
    settings.set_main_option("script_location", str(MIGRATIONS))
    settings.attributes |= {"url": url, "metadata": metadata}
    return settings


def upgrade(url: str, revision: str = "head") -> None:
    """Migrate the database at `url`; two at once are harmless, the second waits.

    Raises:
        psycopg.OperationalError: the database cannot be reached.
        ValueError: `url` is no `postgresql://` URL.
    """
    sqlalchemy_url(url)
    # Alembic's own error for an unreachable host is a page long.
    with psycopg.connect(url, connect_timeout=10, autocommit=True) as connection:
        report_role.make(connection)
    with ONE_AT_A_TIME:
        command.upgrade(config(url), revision)
