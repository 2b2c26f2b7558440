"""One server under a load for some minutes, killed once, and its database once."""

import asyncio
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

import psutil
import psycopg
from cluster import cluster, database
from forge_client.up.postgres import Postgres

from benchmarks.fleet.cost import postmaster
from benchmarks.fleet.server import Server, forge_server
from benchmarks.fleet.simulator import HEARTBEAT_S, POLL_S
from benchmarks.fleet.world import make_fleet, make_world
from benchmarks.server.load import Load
from benchmarks.server.seen import Run, Struck, show
from benchmarks.server.standby import either, promote, standby
from benchmarks.server.users import users_of

OWNERS, ONE_IDLE_IN = 20, 20
HISTORY = Path(__file__).with_name("history.sql")
# Foreign keys and triggers would look at every row, although all are like others.
QUICKLY = """
SET session_replication_role = replica;
SET synchronous_commit = off;
SET jit = off;
"""
# A supervisor starts a server again after this time.
AWAY_S = 2.0


def hold(asked: Namespace) -> None:
    """Make the queue, run the load, and print what was seen."""
    with cluster() as primary, TemporaryDirectory(prefix="forge-holding-") as folder:
        url = database(primary, "held")
        make_world(url, OWNERS, max(asked.workers, OWNERS))
        make_history(url, asked.history, asked.workers)
        fleet = make_fleet(url, asked.workers, ONE_IDLE_IN)
        users = users_of(url)
        words = ("taskset", "-c", "0")
        with standby(primary) as follower:
            both = either(url, follower)
            with forge_server(both, Path(folder), words=words) as server, sweeper(both):
                load = Load(server.base, fleet, users)
                holding = Holding(server, primary, follower, load, asked)
                asyncio.run(holding.hold())
            show(holding.run, both)


def make_history(url: str, rows: int, workers: int) -> None:
    """Add jobs that have ended: two rows each."""
    began = perf_counter()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(QUICKLY)
        given = {"jobs": rows // 2, "workers": workers}
        connection.execute(HISTORY.read_text(encoding="utf-8").encode(), given)
        connection.execute("VACUUM ANALYZE")
    print(f"{rows:,} rows of history, made in {perf_counter() - began:.0f} s", flush=True)


@contextmanager
def sweeper(url: str) -> Iterator[None]:
    """Run a sweeper."""
    command = [sys.executable, "-m", "forge_schema.sweeper.main", "--database-url", url]
    with subprocess.Popen(
        [*command, "--health-port", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield
        finally:
            process.terminate()


class Holding:
    """A run of the load, with its faults."""

    def __init__(
        self, server: Server, primary: str, follower: Postgres, load: Load, asked: Namespace
    ) -> None:
        self._server, self._primary, self._follower = server, primary, follower
        self._load, self._asked = load, asked
        self.run = Run(load.seen, asked.workers)

    async def hold(self) -> None:
        """Run the load; kill the server after a third of the time, the primary after two."""
        run, own, seconds = self.run, psutil.Process(), 60 * self._asked.minutes
        tasks = await self._load.streams()
        print(f"{self._load.open:,} streams are open", flush=True)
        run.began, cpu_s = perf_counter(), sum(own.cpu_times()[:2])
        tasks += [*self._load.fleet(), *self._people(), asyncio.create_task(self._look_on())]
        await self._after(seconds / 3)
        await self._strike("kill -9 of the server", self._kill_server)
        await self._after(2 * seconds / 3)
        await self._strike("failover of Postgres", self._fail_over)
        await self._after(seconds)
        self._count_cpu()
        run.own_cpu_s = sum(own.cpu_times()[:2]) - cpu_s
        run.seconds = perf_counter() - run.began
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _people(self) -> list[asyncio.Task[None]]:
        """Have users make the requests that the fleet's own pace leaves."""
        workers, rate = self._asked.workers, self._asked.rate
        fleet = workers / HEARTBEAT_S + workers / ONE_IDLE_IN / POLL_S
        submits = rate / 30
        # Each job is claimed and ended by one request each.
        return self._load.people(submits, max(1.0, rate - fleet - 3 * submits))

    async def _after(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, self.run.began + seconds - perf_counter()))

    async def _strike(self, name: str, act: Callable[[], None]) -> None:
        struck = perf_counter()
        await asyncio.to_thread(act)
        self.run.faults.append(Struck(name, struck, perf_counter()))

    def _kill_server(self) -> None:
        self._count_cpu()
        self._server.kill()
        sleep(AWAY_S)
        self._server.start()

    def _fail_over(self) -> None:
        first = postmaster(self._primary)
        first.send_signal(signal.SIGQUIT)
        first.wait(60)
        promote(self._follower)

    def _count_cpu(self) -> None:
        self.run.server_cpu_s += sum(self._server.seen.cpu_times()[:2])

    async def _look_on(self) -> None:
        while True:
            with suppress(psutil.NoSuchProcess):
                self.run.memory_mb.append(self._server.seen.memory_info().rss / 1e6)
            self.run.streams.append((perf_counter(), self._load.open))
            await asyncio.sleep(1)
