"""How connections get the settings: one of our own as it starts; `pooler` has the other way."""

from collections.abc import Mapping
from typing import Any

import psycopg

from forge_schema.database.settings import options_of
from forge_schema.database.statements import statement

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
    found = connection.execute(IN_FORCE, [list(settings), list(settings.values())]).fetchone()
    return found == (True,)


def connected(url: str, *, options: str | None = None) -> psycopg.Connection[Any]:
    """Connect to a database that has Forge's tables; raises as `owns_sessions`."""
    connection = psycopg.connect(
        url, autocommit=True, prepare_threshold=None, **KEEPALIVE, options=options
    )
    try:
        connection.execute(statement("health"))
    except BaseException:
        connection.close()
        raise
    return connection
