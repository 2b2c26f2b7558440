"""Check that a database serves this version, and is migrated to it, without loading Alembic."""

from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import psycopg

from forge_schema.database.statements import definitions
from forge_schema.model.errors import ForgeError

# The newest migration. All numbers have the same length, so text order is their order.
HEAD = "0018"
# Major version, the oldest that the tests were run on.
OLDEST_POSTGRES = 14
# The digest is this view's comment: an upgrade drops the views first, and so the digest.
NOTED_ON = "job_status"
FOUND = f"SELECT version_num, obj_description('{NOTED_ON}'::regclass) FROM alembic_version"  # noqa: S608 - ours
MONTHS = """
    SELECT forge_add_months(parent, forge_now(), 2)
    FROM unnest(ARRAY['attempt_row', 'event', 'metric', 'sample']) AS parent
"""


class UnfitPostgres(ForgeError):
    """The server is of a version that lacks what statements need, or stores other texts."""


def refuse_unfit(connection: psycopg.Connection[Any]) -> None:
    """Refuse a server of an older version, and a database that is not in UTF-8.

    Raises:
        UnfitPostgres: it is one.
    """
    if (major := connection.info.server_version // 10_000) < OLDEST_POSTGRES:
        raise UnfitPostgres(
            f"the server is Postgres {major}, and Forge needs {OLDEST_POSTGRES} or later",
            hint="upgrade the server, or name another one",
        )
    if (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
        raise UnfitPostgres(
            f"the database's encoding is {encoding}, and Forge needs UTF8",
            hint="create one with `createdb --encoding=UTF8 --template=template0 NAME`",
        )


def revision_of(connection: psycopg.Connection[Any]) -> str | None:
    """Return the revision of the database, None if it has no tables of ours."""
    if connection.execute("SELECT to_regclass('alembic_version')").fetchone() == (None,):
        return None
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return row[0] if row else None


def mark() -> str:
    """Return the statement that records, at the end of an upgrade, the state it produced."""
    return f"COMMENT ON VIEW {NOTED_ON} IS '{_digest()}'"


def is_current(url: str) -> bool:
    """Tell whether an upgrade would change nothing. If so, add the monthly partitions due.

    Raises:
        psycopg.OperationalError: the database cannot be reached.
    """
    with psycopg.connect(url, connect_timeout=10) as connection:
        try:
            row = connection.execute(FOUND).fetchone()
        except psycopg.errors.UndefinedTable:
            return False
        if row != (HEAD, _digest()):
            return False
        connection.execute(MONTHS)
        return True


@cache
def _digest() -> str:
    made = [version("forge-queue"), *definitions("functions"), *definitions("views")]
    return sha256("\0".join(made).encode()).hexdigest()
