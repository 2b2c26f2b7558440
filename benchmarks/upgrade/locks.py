"""The locks that a migration holds, looked at as often as can be."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

import psycopg

LOOK_S = 0.002
APPLICATION = "forge-upgrade"
# What stops a request that reads, and one that writes.
STOPS = {
    "AccessExclusiveLock": "reads and writes",
    "ExclusiveLock": "writes",
    "ShareRowExclusiveLock": "writes",
    "ShareLock": "writes",
}
HELD = """
    SELECT relation::regclass::text, mode, virtualtransaction,
        extract(epoch FROM clock_timestamp())::float8
    FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE application_name = %s AND granted AND relation IS NOT NULL AND mode = ANY(%s)
        AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
Lock = tuple[str, str, str]


@dataclass
class Locks:
    """When each lock was first and last seen, by table, mode and transaction."""

    seen: dict[Lock, tuple[float, float]] = field(default_factory=dict)

    def longest(self, tables: tuple[str, ...]) -> list[tuple[float, str, str]]:
        """Return for each of the tables how long its requests were stopped, and which."""
        found: dict[tuple[str, str], float] = {}
        for (table, mode, _), (first, last) in self.seen.items():
            if table in tables:
                key = (table, STOPS[mode])
                found[key] = max(found.get(key, 0.0), last - first)
        return sorted(((s, table, what) for (table, what), s in found.items()), reverse=True)


@contextmanager
def watched(url: str) -> Iterator[Locks]:
    """Look at the migration's locks while the block runs."""
    locks, done = Locks(), Event()

    def watch() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not done.wait(LOOK_S):
                for table, mode, transaction, at in connection.execute(
                    HELD, [APPLICATION, list(STOPS)]
                ):
                    first, _ = locks.seen.get((table, mode, transaction), (at, at))
                    locks.seen[table, mode, transaction] = (first, at)

    thread = Thread(target=watch)
    thread.start()
    try:
        yield locks
    finally:
        done.set()
        thread.join()
