"""What the components used, read from the outside."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

import psutil
import psycopg

STATEMENTS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
WAL = "SELECT (pg_current_wal_lsn() - '0/0')::float8"
CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True)
class Reading:
    """Counters at a moment; statements are transactions, as each statement is one."""

    at_s: float
    statements: int
    wal_bytes: float
    postgres_cpu_s: float
    server_cpu_s: float
    connections: int


@dataclass(frozen=True)
class Rates:
    """What was used a second."""

    statements: float
    wal_kb: float
    postgres_cpu: float
    server_cpu: float
    connections: int


def read(url: str, postgres: psutil.Process, servers: Iterable[psutil.Process]) -> Reading:
    """Read the counters."""
    with psycopg.connect(url, autocommit=True) as connection:
        # The backends report their counts with a delay, this one's request first.
        [statements], [wal], [connections] = (
            connection.execute(query).fetchone() or [0] for query in (STATEMENTS, WAL, CONNECTIONS)
        )
    return Reading(
        at_s=perf_counter(),
        statements=statements,
        wal_bytes=wal,
        postgres_cpu_s=_cpu_s(postgres),
        server_cpu_s=sum(map(_cpu_s, servers)),
        connections=connections,
    )


def rates(before: Reading, after: Reading) -> Rates:
    """Return what was used a second between two readings."""
    seconds = after.at_s - before.at_s
    return Rates(
        statements=(after.statements - before.statements) / seconds,
        wal_kb=(after.wal_bytes - before.wal_bytes) / 1000 / seconds,
        postgres_cpu=(after.postgres_cpu_s - before.postgres_cpu_s) / seconds,
        server_cpu=(after.server_cpu_s - before.server_cpu_s) / seconds,
        connections=after.connections,
    )


def postmaster(url: str) -> psutil.Process:
    """Return the server's first process, the parent of all its others."""
    with psycopg.connect(url) as connection:
        return psutil.Process(connection.info.backend_pid).parent() or psutil.Process()


def _cpu_s(process: psutil.Process) -> float:
    """Return the seconds of a process and of all below it, the ended ones too."""
    times = process.cpu_times()
    used = times.user + times.system + times.children_user + times.children_system
    for child in process.children():
        with suppress(psutil.NoSuchProcess):
            used += sum(child.cpu_times()[:2])
    return used
