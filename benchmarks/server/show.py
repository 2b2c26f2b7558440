"""Run what was asked for, and print its tables."""

import argparse
import asyncio
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster import cluster, database

from benchmarks.fleet.server import forge_server
from benchmarks.fleet.world import make_fleet, make_world
from benchmarks.server.attacks import ATTACKS, Site
from benchmarks.server.holding import hold
from benchmarks.server.probe import p95, probing
from benchmarks.server.scenery import scenery
from benchmarks.server.sieges import SIEGES
from benchmarks.server.users import users_of

WORKERS = 200
SIEGE_COLUMNS = (
    "siege",
    "p95 of a heartbeat, a list, before",
    "meanwhile",
    "ratios",
    "memory",
    "afterwards",
)
MINUTE_S = 60
COLUMNS = ("attack", "what", "review, 22 November", "now, alone", "now, under attack")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_subparsers(dest="which", required=True)
    attacks = which.add_parser("attacks", help="what others see while a server is attacked")
    attacks.add_argument("--only", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    sieges = which.add_parser("sieges", help="what others see while somebody goes on and on")
    sieges.add_argument("--only", nargs="+", choices=SIEGES, default=list(SIEGES))
    sieges.add_argument("--seconds", type=float, default=20.0, help="of each siege")
    load = which.add_parser("load", help="what a fleet and its users see, also in faults")
    load.add_argument("--workers", type=int, default=200)
    load.add_argument("--rate", type=float, default=50.0, help="requests a second, of all together")
    load.add_argument("--minutes", type=float, default=1.5)
    load.add_argument("--history", type=int, default=100_000, help="rows of ended jobs")
    asked = parser.parse_args()
    busy = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{os.cpu_count()} cores at a load of {busy}, Python {platform.python_version()}\n")
    if asked.which == "attacks":
        show_attacks(asked.only)
    elif asked.which == "sieges":
        show_sieges(asked.only, asked.seconds)
    else:
        hold(asked)


def show_attacks(names: list[str]) -> None:
    """Attack a fresh server in each way."""
    print(f"| {' | '.join(COLUMNS)} |")
    print("|" + "---|" * len(COLUMNS), flush=True)
    for name, site in sites(names):
        asyncio.run(attack(name, site))


def sites(names: list[str]) -> Iterator[tuple[str, Site]]:
    """Yield each name with a fresh server on one queue, for as long as it is looked at."""
    with cluster() as server_url, TemporaryDirectory(prefix="forge-attacks-") as folder:
        url = database(server_url, "attacked")
        make_world(url, owners=1, jobs=1)
        fleet, users = make_fleet(url, WORKERS), users_of(url)
        for name in names:
            with forge_server(url, Path(folder)) as server:
                yield name, Site(server, fleet, users)


async def attack(name: str, site: Site) -> None:
    """Attack in one way, and print each figure as soon as it is known."""
    fleet = site.fleet
    # The first requests prepare routes and connections.
    for _ in range(5):
        await site.health()
        await site.beat(fleet[0])
    async for one in ATTACKS[name](site):
        print(
            f"| {one.attack} | {one.what} | {one.review} | {one.alone} | {one.under} |", flush=True
        )
    site.wire.close()


def show_sieges(names: list[str], seconds: float) -> None:
    """Besiege a fresh server in each way, and look at it again a minute later at most."""
    print(f"| {' | '.join(SIEGE_COLUMNS)} |")
    print("|" + "---|" * len(SIEGE_COLUMNS), flush=True)
    for name, site in sites(names):
        asyncio.run(besiege(name, site, seconds))


async def besiege(name: str, site: Site, seconds: float) -> None:
    """Besiege in one way, and print what was seen before, meanwhile and afterwards."""
    made = await asyncio.to_thread(scenery, site)
    worker, ann = site.fleet[0], site.users["ann"]
    with probing(site.server.base, worker, ann) as before:
        await asyncio.sleep(seconds / 2)
    start = site.server.seen
    memory, files = start.memory_info().rss, start.num_fds()
    most = memory
    siege = asyncio.create_task(SIEGES[name](site, made))
    with probing(site.server.base, worker, ann) as under:
        for _ in range(int(4 * seconds)):
            await asyncio.sleep(0.25)
            most = max(most, start.memory_info().rss)
    siege.cancel()
    await asyncio.gather(siege, return_exceptions=True)
    waited = 0
    while start.num_fds() > files + 2 and waited < MINUTE_S:
        await asyncio.sleep(1)
        waited += 1
    with probing(site.server.base, worker, ann) as after:
        await asyncio.sleep(seconds / 4)
    left = start.memory_info().rss
    print(
        f"| {name} | {before.text} | {under.text}"
        f" | {p95(under.beats) / p95(before.beats):.1f}, {p95(under.lists) / p95(before.lists):.1f}"
        f" | {memory / 1e6:.0f} → {most / 1e6:.0f} MB ({most / memory:.2f})"
        f" | {after.text}; {left / 1e6:.0f} MB; descriptors as before after {waited} s |",
        flush=True,
    )
    site.wire.close()
