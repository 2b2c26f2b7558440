"""Run each size over each transport, and print the tables."""

import argparse
import os
import platform
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

import psutil
import psycopg
from cluster import cluster, database
from forge_schema.database.pool import Database
from forge_schema.queue.queue import Queue

from benchmarks.fleet.cost import Rates, postmaster, rates, read
from benchmarks.fleet.server import Server, forge_server
from benchmarks.fleet.simulator import POLL_S, Done, serve
from benchmarks.fleet.world import TEMPLATE, make_fleet, make_world, waiting_job

SIZES = (100, 1_000, 10_000)
TRANSPORTS = ("direct", "http")
# What each worker holds: direct a listener, a claim's and a renewal's; over HTTP a stream, a
# claim's and a heartbeat's.
HELD_EACH = 3
SERVER_TAKES = 10_000
# Of the database's, by default, with the one that listens.
SERVER_HOLDS = 15
LONGEST_S = 120
# A heartbeat should be answered long before the next is due.
LATE_S = 5.0
READY_S, STANDSTILL_S = 300, 60
COLUMNS = (
    "transport",
    "workers",
    "statements/s",
    "WAL kB/s",
    "Postgres CPU",
    "server CPU",
    "simulator CPU",
    "database connections here",
    "a real fleet's",
    "beats/s",
    "looks/s",
    "ends/s",
    "beat ms p50/p99",
    "look ms p50/p99",
    "submit to claim ms p50",
    "submitted, claimed",
)
CLAIMED = """
SELECT extract(epoch FROM claimed_at - ready_at)::float8 FROM lease WHERE job_id = ANY(%(ids)s)
UNION ALL
SELECT extract(epoch FROM claimed_at - ready_at)::float8 FROM attempt WHERE job_id = ANY(%(ids)s)
"""


@dataclass(frozen=True)
class Seen:
    """One size over one transport."""

    transport: str
    size: int
    servers: int
    rates: Rates
    simulator_cpu: float
    done: Done
    submitted: int
    dispatch_s: list[float]
    most_connections: int
    seconds: float


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="workers")
    parser.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=TRANSPORTS)
    parser.add_argument("--seconds", type=int, default=30, help="of each run, at most 120")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="ready jobs")
    parser.add_argument("--owners", type=int, default=1_000)
    parser.add_argument("--processes", type=int, default=2, help="of the simulator")
    parser.add_argument("--servers", type=int, default=1, help="which the processes share")
    asked = parser.parse_args()
    seconds = min(asked.seconds, LONGEST_S)
    with cluster() as server_url, TemporaryDirectory(prefix="forge-fleet-") as folder:
        began = perf_counter()
        make_world(database(server_url, TEMPLATE), asked.owners, asked.jobs)
        print(
            f"{asked.jobs:,} ready jobs of {asked.owners:,} owners, made in"
            f" {perf_counter() - began:.0f} s; {seconds} s each; {os.cpu_count()} cores,"
            f" Python {platform.python_version()}\n"
        )
        seen = []
        print(f"| {' | '.join(COLUMNS)} |")
        print("|" + "---|" * len(COLUMNS), flush=True)
        for transport in asked.transports:
            for size in asked.sizes:
                with copied(server_url, f"{transport}_{size}") as url:
                    seen.append(run(url, Path(folder), transport, size, seconds, asked))
                print(line(seen[-1]), flush=True)
    print("\nWhat breaks:\n")
    for one in seen:
        print(f"- {one.transport}, {one.size:,} workers: {verdict(one)}")


@contextmanager
def copied(server_url: str, name: str) -> Iterator[str]:
    """Lend a copy of the world."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy")
        yield server_url.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def run(  # noqa: PLR0917  one run's circumstances
    url: str, root: Path, transport: str, size: int, seconds: int, asked: argparse.Namespace
) -> Seen:
    """Have a fleet of a size work for a while, and look at what it costs."""
    fleet = make_fleet(url, size)
    postgres, context = postmaster(url), get_context("spawn")
    number = asked.servers if transport == "http" else 0
    with servers(url, root, number) as running, closing(Queues(url, asked.owners)) as queues:
        bases: list[str | None] = [*(one.base for one in running)] or [None]
        server = [one.seen for one in running]
        pipes, processes = [], []
        for n in range(asked.processes):
            here, there = context.Pipe()
            share, base = fleet[n :: asked.processes], bases[n % len(bases)]
            process = context.Process(target=serve, args=(there, url, base, share), daemon=True)
            process.start()
            pipes.append(here)
            processes.append(process)
        for pipe in pipes:
            connected(pipe)
        before = read(url, postgres, server)
        for pipe in pipes:
            pipe.send(seconds)
        submitted = queues.submit_each_second(seconds)
        after = read(url, postgres, server)
        done = merged([ended(pipe) for pipe in pipes])
        for process in processes:
            process.kill()
            process.join()
        return Seen(
            transport=transport,
            size=size,
            servers=number,
            rates=rates(before, after),
            simulator_cpu=done.cpu_s / seconds,
            done=done,
            submitted=len(submitted),
            dispatch_s=queues.dispatched(submitted),
            most_connections=queues.most_connections(),
            seconds=after.at_s - before.at_s,
        )


@contextmanager
def servers(url: str, root: Path, number: int) -> Iterator[list[Server]]:
    """Run this many servers on one store."""
    (root / "store").mkdir(exist_ok=True)
    with ExitStack() as held:
        running = []
        for n in range(number):
            place = root / f"server-{n}"
            place.mkdir(exist_ok=True)
            running.append(held.enter_context(forge_server(url, place, (root / "store").as_uri())))
        yield running


class Queues:
    """The one who submits, and who looks afterwards."""

    def __init__(self, url: str, owners: int) -> None:
        self._url, self._owners = url, owners
        self._database = Database(url).open()
        self._queue = Queue(self._database, actor="user:ann")

    def close(self) -> None:
        self._database.close()

    def submit_each_second(self, seconds: int) -> list[int]:
        """Submit a job a second for a while and return their ids."""
        began, ids = perf_counter(), []
        for n in range(seconds):
            sleep(max(0.0, began + n - perf_counter()))
            if perf_counter() - began > seconds:
                break
            ids += self._queue.submit([waiting_job(n % self._owners)])
        sleep(max(0.0, began + seconds - perf_counter()))
        return ids

    def dispatched(self, ids: list[int]) -> list[float]:
        """Return how long each of these jobs waited for its worker, if one has come."""
        with psycopg.connect(self._url) as connection:
            return [row[0] for row in connection.execute(CLAIMED, {"ids": ids}).fetchall()]

    def most_connections(self) -> int:
        with psycopg.connect(self._url) as connection:
            row = connection.execute("SHOW max_connections").fetchone()
        return int(row[0]) if row else 0


def connected(pipe: Connection) -> None:
    """Wait until a simulator has its connections."""
    assert pipe.poll(READY_S), "a simulator does not answer"
    pipe.recv()


def ended(pipe: Connection) -> Done:
    """Return what a simulator did, or that it came to a standstill itself."""
    if pipe.poll(STANDSTILL_S):
        done: Done = pipe.recv()
        return done
    return Done(failed=["SimulatorStoodStill"])


def merged(parts: list[Done]) -> Done:
    """Add up what the processes did."""
    whole = Done()
    for part in parts:
        whole.beats += part.beats
        whole.looks += part.looks
        whole.ends += part.ends
        whole.claimed += part.claimed
        whole.ticks += part.ticks
        whole.failed += part.failed
        whole.waiting_beats += part.waiting_beats
        whole.waiting_looks += part.waiting_looks
        whole.cpu_s += part.cpu_s
    return whole


def verdict(seen: Seen) -> str:
    """Say what does not hold at this size."""
    done, broken = seen.done, []
    held = HELD_EACH * seen.size
    if seen.transport == "direct" and held > seen.most_connections:
        broken.append(f"{held:,} connections, max_connections is {seen.most_connections}")
    if held > SERVER_TAKES * seen.servers > 0:
        broken.append(f"{held:,} connections, a server takes {SERVER_TAKES:,}")
    late = share(done.beats, 0.99) > LATE_S
    if late:
        broken.append(f"heartbeats take {share(done.beats, 0.99):.1f} s (p99)")
    if done.waiting_beats > len(done.beats):
        broken.append(f"{done.waiting_beats:,} heartbeats wait, {len(done.beats):,} were answered")
    if share(done.looks, 0.5) > POLL_S:
        broken.append(f"looks take {share(done.looks, 0.5):.1f} s, every {POLL_S:g} s one is due")
    if done.waiting_looks > len(done.looks):
        broken.append(f"{done.waiting_looks:,} looks wait, {len(done.looks):,} were answered")
    used = seen.rates.postgres_cpu + seen.rates.server_cpu + seen.simulator_cpu
    if used > 0.9 * (psutil.cpu_count() or 1):
        broken.append(f"the machine's CPUs are used up ({used:.1f})")
    if done.failed:
        broken.append(f"{len(done.failed)} calls failed ({', '.join(sorted(set(done.failed)))})")
    return "; ".join(broken) or "holds"


def line(one: Seen) -> str:
    """Return a row of the table."""
    done, used = one.done, one.rates
    real = SERVER_HOLDS * one.servers or HELD_EACH * one.size
    cells = (
        one.transport,
        f"{one.size:,}",
        f"{used.statements:,.0f}",
        f"{used.wal_kb:,.0f}",
        f"{used.postgres_cpu:.2f}",
        f"{used.server_cpu:.2f}",
        f"{one.simulator_cpu:.2f}",
        f"{used.connections}",
        f"{real:,}",
        f"{len(done.beats) / one.seconds:.1f}",
        f"{len(done.looks) / one.seconds:.1f}",
        f"{len(done.ends) / one.seconds:.1f}",
        spread(done.beats),
        spread(done.looks),
        f"{1000 * median(one.dispatch_s):.0f}" if one.dispatch_s else "none",
        f"{one.submitted}, {len(one.dispatch_s)}",
    )
    return f"| {' | '.join(cells)} |"


def spread(times: list[float]) -> str:
    return f"{1000 * share(times, 0.5):,.0f} / {1000 * share(times, 0.99):,.0f}"


def share(times: list[float], part: float) -> float:
    """Return the time within which this part of all was answered."""
    return sorted(times)[min(len(times) - 1, int(part * len(times)))] if times else 0.0
