"""Hold a database: it takes no writes, so that a queue can be copied while its workers live.

For them it is as if a standby had taken over: they wait, and go on. Only the database's owner or a
superuser may do this, and directly, not through a pooler.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg import sql

from forge_schema.database.pool import explained

SETTING = "default_transaction_read_only"
WRITING = f"-c {SETTING}=off"
HELD = """
    SELECT EXISTS (
        SELECT FROM pg_db_role_setting
        WHERE setrole = 0 AND setconfig @> ARRAY[%s]
            AND setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
"""
# A session keeps the setting with which it began. Each is waited for.
END_OLDER = """
    SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
        AND pid <> pg_backend_pid() AND backend_start <= %s
"""
NOTE = """
    SELECT shobj_description(oid, 'pg_database') FROM pg_database
    WHERE datname = current_database()
"""


def writing_url(url: str) -> str:
    """Return the URL with which connections may write although the database is held."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query))
    given["options"] = f"{given.get('options', '')} {WRITING}".strip()
    # Not _replace().geturl(), which drops the // of a URL without a host.
    return f"{url.partition('?')[0]}?{urlencode(given, quote_via=quote)}"


@contextmanager
def writing(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Connect, and write also if the database is held.

    Raises:
        DatabaseUnreachable: it does not answer.
    """
    try:
        connection = psycopg.connect(
            writing_url(url), autocommit=True, connect_timeout=10, prepare_threshold=None
        )
    except psycopg.OperationalError as error:
        raise explained(error, url) from error
    with connection:
        yield connection


def is_held(url: str) -> bool:
    """Tell whether the database is held."""
    with writing(url) as connection:
        return _first(connection, HELD, [f"{SETTING}=on"]) is True


def hold(url: str) -> None:
    """Let no other session write to the database; return once none can. May run twice."""
    _set(url, "ALTER DATABASE {} SET {} = on")


def release(url: str) -> None:
    """Let sessions write again. May run twice."""
    _set(url, "ALTER DATABASE {} RESET {}")


def note(url: str) -> str:
    """Return the database's comment, where it is noted why it is held."""
    with writing(url) as connection:
        return str(_first(connection, NOTE) or "")


def set_note(url: str, text: str) -> None:
    """Note why the database is held; an empty text removes the note."""
    with writing(url) as connection:
        literal = sql.Literal(text or None)
        connection.execute(
            sql.SQL("COMMENT ON DATABASE {} IS {}").format(_name(connection), literal)
        )


def _set(url: str, statement: str) -> None:
    with writing(url) as connection:
        change = sql.SQL(statement).format(_name(connection), sql.Identifier(SETTING))
        connection.execute(change)
        now = _first(connection, "SELECT clock_timestamp()")
        while _first(connection, END_OLDER, [now]):
            pass


def _name(connection: psycopg.Connection[Any]) -> sql.Identifier:
    return sql.Identifier(str(_first(connection, "SELECT current_database()")))


def _first(connection: psycopg.Connection[Any], statement: Any, params: Any = ()) -> object:  # noqa: ANN401 - psycopg's own
    row = connection.execute(statement, params).fetchone()
    return row[0] if row else None
