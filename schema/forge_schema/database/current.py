"""Check that a database serves this version, and is migrated to it, without loading Alembic."""

from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import psycopg

from forge_schema.database.statements import definitions
from forge_schema.model.errors import ForgeError

# The newest migration. All numbers have the same length, so text order is their order.
HEAD = "0017"
# Major version, the oldest that the tests were run on.
OLDEST_POSTGRES = 14
# The digest is this view's comment: an upgrade drops the views first, and so the digest.
NOTED_ON = "job_status"
FOUND = f"SELECT version_num, obj_description('{NOTED_ON}'::regclass) FROM alembic_version"  # noqa: S608 - ours
MONTHS = """
    SELECT forge_add_months(parent, forge_now(), 2)
    FROM unnest(ARRAY['attempt_row', 'event', 'metric', 'sample']) AS parent
"""


class OldPostgres(ForgeError):
    """The server is of a version that lacks what statements need."""


def refuse_old(server_version: int) -> None:
    """Refuse a server of an older version, written as libpq does: 140023 for 14.23.

    Raises:
        OldPostgres: it is one.
    """
    if (major := server_version // 10_000) < OLDEST_POSTGRES:
        raise OldPostgres(
            f"the server is Postgres {major}, and Forge needs {OLDEST_POSTGRES} or later",
            hint="upgrade the server, or name another one",
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
