"""Lock tables for a migration without failing a request: rather give way, and try again.

A migration that waits for one table while it holds others can wait for a request that waits for it.
After a second Postgres ends one of the two, perhaps the request. So a migration takes all its locks
at once, gives up after a fraction of that, and leaves the tables to the requests for a moment.
"""

import random
import time
from collections.abc import Callable
from itertools import cycle

import psycopg
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

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
        AND relnamespace = 'public'::regnamespace
    ORDER BY relname
"""


class TablesInUse(ForgeError):
    """There was no moment at which nobody used the tables."""

    code = "tables_in_use"


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
