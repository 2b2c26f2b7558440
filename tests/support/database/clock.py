"""The database's clock under a test's control: `forge_now()` reads a table that the test writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg

# Long after the server's start, which the sweeper takes into account.
START = datetime(2031, 1, 1, tzinfo=UTC)

BY_TABLE = """
    CREATE TABLE test_clock (now timestamptz NOT NULL);
    CREATE OR REPLACE FUNCTION forge_now() RETURNS timestamptz
    LANGUAGE sql VOLATILE AS 'SELECT now FROM test_clock';
"""


class Steady:
    """A monotonic clock on which everything takes equally long: each reading adds a millisecond."""

    def __init__(self) -> None:
        self._readings = 0

    def __call__(self) -> float:
        self._readings += 1
        return self._readings / 1000


class Clock:
    """Stands still until a test advances it."""

    def __init__(self, url: str, now: datetime = START) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute(BY_TABLE)
        self.connection.execute("INSERT INTO test_clock VALUES (%s)", [now])
        self.now = now

    def set(self, now: datetime) -> None:
        """Set the time to `now`."""
        self.connection.execute("UPDATE test_clock SET now = %s", [now])
        self.now = now

    def advance(self, seconds: float) -> None:
        """Advance the time by `seconds`."""
        self.set(self.now + timedelta(seconds=seconds))

    def close(self) -> None:
        self.connection.close()
