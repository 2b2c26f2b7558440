"""Settings behind a pooler, which would neither keep those of a session nor keep them apart.

The session belongs to whoever comes next, so they are stored on the role, in this database only.
"""

from contextlib import suppress
from typing import Any

import psycopg
import structlog
from psycopg import sql

from forge_schema.database.connections import SETTINGS, connected, in_force

STORED = """
    SELECT coalesce(bool_or(setconfig @> %s::text[]), false)
    FROM pg_db_role_setting
    WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND setrole = (SELECT oid FROM pg_roles WHERE rolname = session_user)
"""
MAKING_LOCK = 0x666F726766  # "forgf"
# How many server connections that started before the settings did are replaced at one start.
MOST_OLD = 8
# Others may change the same role at the same time.
CHANGED_MEANWHILE = (psycopg.errors.InternalError_, psycopg.errors.UniqueViolation)

log = structlog.get_logger(__name__)


def keep_on_role(url: str) -> None:
    """Store the settings on the role, in this database, unless they are.

    A pooler's connections to the server keep the settings that they started with. Each older one
    that is met is ended; the pooler replaces it.
    """
    for left in reversed(range(MOST_OLD)):
        with connected(url) as connection:
            try:
                _store(connection)
            except CHANGED_MEANWHILE:
                if not left:
                    raise
                continue
            if _has_settings(connection):
                return
    log.warning("settings_not_in_force", note="the pooler has connections from before: RECONNECT")


def _store(connection: psycopg.Connection[Any]) -> None:
    if _stored(connection):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [MAKING_LOCK])
        if not _stored(connection):
            # Not through the URL: a pooler may call the database something else.
            (name,) = connection.execute("SELECT current_database()").fetchone() or ("",)
            for setting, value in SETTINGS.items():
                connection.execute(_altered(name, setting, value))


def _altered(database: str, setting: str, value: str) -> sql.Composed:
    # Not CURRENT_USER: settings are those of the role that logs in.
    return sql.SQL("ALTER ROLE SESSION_USER IN DATABASE {} SET {} = {}").format(
        sql.Identifier(database), sql.Identifier(setting), sql.Literal(value)
    )


def _stored(connection: psycopg.Connection[Any]) -> bool:
    stored = [f"{name}={value}" for name, value in SETTINGS.items()]
    return connection.execute(STORED, [stored]).fetchone() == (True,)


def _has_settings(connection: psycopg.Connection[Any]) -> bool:
    """Tell whether a pooler's connection has the settings; one that is older is ended."""
    # In one transaction, so that a pooler does not change the server connection in between.
    with suppress(psycopg.OperationalError), connection.transaction():
        if in_force(connection, SETTINGS):
            return True
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    return False
