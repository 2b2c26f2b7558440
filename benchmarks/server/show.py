"""Run what was asked for, and print its tables."""

import argparse
import asyncio
import os
import platform

from benchmarks.server.attacks import ATTACKS, Site
from benchmarks.server.besieged import show_sieges, sites
from benchmarks.server.holding import hold
from benchmarks.server.sieges import SIEGES

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
    sieges.add_argument("--nginx", action="store_true", help="everybody comes through infra/proxy")
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
        show_sieges(asked.only, asked.seconds, proxied=asked.nginx)
    else:
        hold(asked)


def show_attacks(names: list[str]) -> None:
    """Attack a fresh server in each way."""
    print(f"| {' | '.join(COLUMNS)} |")
    print("|" + "---|" * len(COLUMNS), flush=True)
    for name, site in sites(names):
        asyncio.run(attack(name, site))


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
