"""A server under siege, as a worker and a user see it who come from other addresses.

The besieger has the first core, and the server and those who look at it have the others. So what
they see is what a siege costs the server, and not what it costs to make one.
"""

import asyncio
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from cluster import cluster, database
from support.http import nginx
from support.http.certificates import certificates
from support.ports import free_port
from support.waiting import eventually

from benchmarks.fleet.server import Server, forge_server
from benchmarks.fleet.world import make_fleet, make_world
from benchmarks.server.attacks import Site
from benchmarks.server.probe import Seen, p95, probing
from benchmarks.server.scenery import scenery
from benchmarks.server.sieges import SIEGES
from benchmarks.server.users import users_of
from benchmarks.server.wire import connect

WORKERS = 200
COLUMNS = (
    "siege",
    "p95 of a heartbeat, a list, before",
    "meanwhile",
    "ratios",
    "memory",
    "afterwards",
)
MINUTE_S = 60
# Connections to the database, which stay open.
POOLED = 14


def sites(
    names: list[str], words: Sequence[str] = (), *, proxied: bool = False
) -> Iterator[tuple[str, Site]]:
    """Yield each name with a fresh server on one queue, for as long as it is looked at."""
    with cluster() as server_url, TemporaryDirectory(prefix="forge-attacks-") as folder:
        url = database(server_url, "attacked")
        make_world(url, owners=1, jobs=1)
        fleet, users = make_fleet(url, WORKERS), users_of(url)
        for name in names:
            with ExitStack() as held:
                server = held.enter_context(forge_server(url, Path(folder), words=words))
                entrance = held.enter_context(_proxy(server, words)) if proxied else ""
                yield name, Site(server, fleet, users, entrance)


@contextmanager
def _proxy(server: Server, words: Sequence[str]) -> Iterator[str]:
    """Run nginx as `infra/proxy` ships it, and yield its URL."""
    program = nginx.program()
    assert program is not None, "there is no nginx"
    with TemporaryDirectory(prefix="forge-nginx-") as folder:
        port, made = free_port(), certificates(Path(folder))
        behind = [server.base.removeprefix("http://")]
        command = nginx.command(program, Path(folder), port, made, behind)
        with subprocess.Popen([*words, *command], stderr=subprocess.DEVNULL) as process:
            try:
                url = f"https://127.0.0.1:{port}"
                eventually(lambda: asyncio.run(_answers(url)))
                yield url
            finally:
                process.terminate()


async def _answers(url: str) -> bool:
    try:
        _, writer = await connect(url)
    except OSError:
        return False
    writer.transport.abort()
    return True


def show_sieges(names: list[str], seconds: float, *, proxied: bool) -> None:
    """Besiege a fresh server in each way, and look at it again a minute later at most."""
    first, *others = sorted(os.sched_getaffinity(0))
    cores = set(others) or {first}
    words = ("taskset", "-c", ",".join(map(str, sorted(cores))))
    print(f"| {' | '.join(COLUMNS)} |")
    print("|" + "---|" * len(COLUMNS), flush=True)
    for name, site in sites(names, words, proxied=proxied):
        asyncio.run(Besieged(site, cores).besiege(name, seconds))


class Besieged:
    """A site, and the cores of all but the besieger."""

    def __init__(self, site: Site, cores: set[int]) -> None:
        self._site, self._cores = site, cores
        self._server: psutil.Process = site.server.seen

    async def besiege(self, name: str, seconds: float) -> None:
        """Besiege in one way, and print what was seen before, meanwhile and afterwards."""
        made = await asyncio.to_thread(scenery, self._site)
        before = await self._seen(seconds / 2)
        memory, files = self._server.memory_info().rss, self._server.num_fds()
        # The kernel knows threads by ids of their own: this is the one that makes the siege.
        everywhere = os.sched_getaffinity(0)
        os.sched_setaffinity(0, everywhere - self._cores or everywhere)
        siege = asyncio.create_task(SIEGES[name](self._site, made))
        most: list[int] = []
        under = await self._seen(seconds, most)
        siege.cancel()
        await asyncio.gather(siege, return_exceptions=True)
        os.sched_setaffinity(0, everywhere)
        waited = 0
        while self._server.num_fds() > files + POOLED and waited < MINUTE_S:
            await asyncio.sleep(1)
            waited += 1
        after, left = await self._seen(seconds / 4), self._server.memory_info().rss
        print(
            f"| {name} | {before.text} | {under.text}"
            f" | {p95(under.beats) / p95(before.beats):.1f},"
            f" {p95(under.lists) / p95(before.lists):.1f}"
            f" | {memory / 1e6:.0f} → {max(most) / 1e6:.0f} MB ({max(most) / memory:.2f})"
            f" | {after.text}; {left / 1e6:.0f} MB; descriptors as before after {waited} s |",
            flush=True,
        )
        self._site.wire.close()

    async def _seen(self, seconds: float, memory: list[int] | None = None) -> Seen:
        site = self._site
        worker, ann = site.fleet[0], site.users["ann"]
        with probing(site.entrance, worker, ann, self._cores) as seen:
            for _ in range(int(4 * seconds)):
                await asyncio.sleep(0.25)
                if memory is not None:
                    memory.append(self._server.memory_info().rss)
        return seen
