"""Connections: the settings that they get as they start, and how long they wait for an answer.

`pooler` has another way for the settings. A stopped server, or a proxy that drops data, keeps a
connection alive: no timeout of the server or of TCP ends the wait, so we do.
"""

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event, Thread
from time import monotonic
from typing import Any

import psycopg

from forge_schema.database.statements import statement

SCHEMES = ("postgresql://", "postgres://")
EXAMPLE = "write postgresql://user:password@host:5432/database"
STATEMENT_S = 30.0
# A worker that died holding a row lock must not hold it for long. Every statement of the
# protocol is planned for an index, since the thin tables' statistics are stale by nature.
SETTINGS = {
    "statement_timeout": f"{STATEMENT_S:.0f}s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "5s",
    "idle_session_timeout": "0",
    "default_transaction_isolation": "read committed",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
# One that listens is idle by nature, and gets no other settings.
LISTEN = "SET idle_session_timeout = 0; LISTEN forge"
# Formats that our statements and the driver read. A server, a database or a role may have others,
# which each connection is told as it starts.
FORMATS = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "standard_conforming_strings": "on",
}
# A report reads large parts of tables, so the planner may use every method.
REPORT = """
    SET LOCAL plan_cache_mode = auto;
    SET LOCAL enable_seqscan = on;
    SET LOCAL enable_bitmapscan = on;
    SET LOCAL enable_hashjoin = on;
    SET LOCAL enable_mergejoin = on;
"""
# Every method, and no limit: an upgrade may read whole tables for minutes. Compiling statements,
# each of which runs once, was four fifths of its work.
UPGRADE = f"""
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    {"".join(f"SET LOCAL {name} = {value};" for name, value in FORMATS.items())}
    {REPORT}
    SET LOCAL jit = off;
    SET LOCAL statement_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = 0;
"""

# A dropped connection is noticed within about seven seconds; without these it takes minutes.
KEEPALIVE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 7000,
}
IN_FORCE = """
    SELECT bool_and(current_setting(name) = value)
    FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)
"""
# Unlike the limit that may be stored on the role, so that it tells where the settings came from.
PROBE_S = 29.0
LOOKS_PER_LIMIT = 4


def url_fault(url: str) -> str:
    """Return what is wrong with a database's URL, without quoting it: it may hold a password."""
    if url != url.strip():
        return "it begins or ends with a space or a line break"
    if not url.startswith(SCHEMES) and ("://" in url or "=" not in url):
        return "it does not begin with postgresql://"
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        fault = str(error).strip().partition(': "')[0]
        return fault if url.startswith(SCHEMES) else "it is no connection string either"
    return ""


def options_of(url: str, statement_s: float) -> str:
    """Return the startup parameter `options` with the settings, after those of the URL."""
    given = psycopg.conninfo.conninfo_to_dict(url).get("options")
    before = os.environ.get("PGOPTIONS", "") if given is None else str(given)
    wanted = SETTINGS | {"statement_timeout": str(_milliseconds(statement_s))}
    escaped = {name: value.replace(" ", r"\ ") for name, value in wanted.items()}
    return " ".join([before, *(f"-c {name}={value}" for name, value in escaped.items())])


def read_as_usual(connection: psycopg.Connection[Any]) -> None:
    """Set the formats that the server has otherwise; most have none."""
    for name, value in FORMATS.items():
        told = connection.info.parameter_status(name)
        if told and told.partition(",")[0] != value:
            connection.execute(f"SET {name} = {value}", prepare=False)


def limit(statement_s: float) -> str:
    """Return the statement that sets a transaction's limit for each of its statements."""
    return f"SET LOCAL statement_timeout = {_milliseconds(statement_s)}"


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def owns_sessions(url: str) -> bool:
    """Tell whether a connection gets its settings as it starts. A pooler refuses or drops them.

    Raises:
        psycopg.OperationalError: the database cannot be reached.
        psycopg.ProgrammingError: it does not have Forge's tables.
    """
    try:
        with connected(url, options=options_of(url, PROBE_S)) as connection:
            return in_force(connection, {"statement_timeout": f"{PROBE_S:.0f}s"})
    except psycopg.OperationalError as error:
        if "options" not in str(error):
            raise
        return False


def in_force(connection: psycopg.Connection[Any], settings: Mapping[str, str]) -> bool:
    """Tell whether a session has the settings."""
    row = connection.execute(IN_FORCE, [list(settings), list(settings.values())]).fetchone()
    return row == (True,)


def connected(url: str, *, options: str | None = None) -> psycopg.Connection[Any]:
    """Connect to a database that has Forge's tables; raises as `owns_sessions`."""
    connection = psycopg.connect(
        url, autocommit=True, prepare_threshold=None, **KEEPALIVE, options=options
    )
    try:
        read_as_usual(connection)
        connection.execute(statement("health"))
    except BaseException:
        connection.close()
        raise
    return connection


class AwaitedAnswers:
    """The connections that are waiting for an answer, watched by a thread once started.

    Args:
        limit_s: how long an answer may take, in seconds; longer than the server's own timeouts.
        clock: returns the time in seconds.
        at_rest: called now and then.
    """

    def __init__(
        self,
        limit_s: float,
        clock: Callable[[], float] = monotonic,
        at_rest: Callable[[], None] = lambda: None,
    ) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._at_rest = at_rest
        self._since: dict[psycopg.Connection[Any], float] = {}
        self._ending = Event()

    def start(self) -> None:
        self._ending.clear()
        Thread(target=self._look, name="answers", daemon=True).start()

    def end(self) -> None:
        self._ending.set()

    def awaited(self, connection: psycopg.Connection[Any]) -> None:
        """Record that a statement begins."""
        self._since[connection] = self._clock()

    def heard(self, connection: psycopg.Connection[Any]) -> None:
        """Record that the statement has ended."""
        self._since.pop(connection, None)

    def break_off(self) -> int:
        """Close connections that have waited too long, which wakes their threads; count them."""
        now = self._clock()
        # Other threads begin and end meanwhile; copying is atomic.
        waiting = self._since.copy()
        late = [c for c, since in waiting.items() if now - since > self._limit_s]
        for connection in late:
            _hang_up(connection)
        return len(late)

    def _look(self) -> None:
        while not self._ending.wait(self._limit_s / LOOKS_PER_LIMIT):
            self.break_off()
            self._at_rest()


def _hang_up(connection: psycopg.Connection[Any]) -> None:
    # libpq waits on the socket itself, so only closing the socket wakes the thread.
    with (
        suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as line,
    ):
        line.shutdown(socket.SHUT_RDWR)
