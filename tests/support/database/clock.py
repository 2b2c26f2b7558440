"""The database's clock in a test's hands: `forge_now()` reads a table that the test writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg

# Long after the server's start, of which the sweeper takes notice.
START = datetime(2031, 1, 1, tzinfo=UTC)

BY_TABLE = """
    CREATE TABLE test_clock (now timestamptz NOT NULL);
    CREATE OR REPLACE FUNCTION forge_now() RETURNS timestamptz
    LANGUAGE sql VOLATILE AS 'SELECT now FROM test_clock';
"""


class Steady:
    """A monotonic clock by which everything takes the same: a millisecond for each reading."""

    def __init__(self) -> None:
        self._readings = 0

    def __call__(self) -> float:
        self._readings += 1
        return self._readings / 1000


class Clock:
    """Stands still until a test moves it."""

    def __init__(self, url: str, now: datetime = START) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(BY_TABLE)
        self._connection.execute("INSERT INTO test_clock VALUES (%s)", [now])
        self.now = now

    def set(self, now: datetime) -> None:
        """Make it `now`."""
        self._connection.execute("UPDATE test_clock SET now = %s", [now])
        self.now = now

    def advance(self, seconds: float) -> None:
        """Let `seconds` go by."""
        self.set(self.now + timedelta(seconds=seconds))

    def close(self) -> None:
        self._connection.close()
