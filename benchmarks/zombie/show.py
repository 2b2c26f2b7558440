"""Run the scenarios for each queue and print what was seen."""

import argparse
import platform
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from forge_client.up.postgres import Postgres

from benchmarks.zombie.contenders import FORGE, LIMIT_S, PEERS, Contender
from benchmarks.zombie.environment import CannotInstall, environment, versions
from benchmarks.zombie.scenarios import (
    MOST_RUNS,
    Poison,
    Reported,
    WentOn,
    poison,
    reported,
    went_on,
)
from benchmarks.zombie.stage import stage

TELLING = re.compile("(?i)error|not found|lease|stale|expired|no longer|given up")
WIDTH = 160


@dataclass(frozen=True)
class Seen:
    """All that was seen of one queue."""

    contender: Contender
    version: str
    reported: Reported
    went_on: WentOn
    poison: Poison


def main() -> None:
    """Compare all queues that can be installed."""
    names = [one.name for one in (FORGE, *PEERS)]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=names, action="append", help="one queue; may be repeated")
    wanted = parser.parse_args().only or names
    with ExitStack() as held:
        root = Path(held.enter_context(TemporaryDirectory(prefix="forge-zombie-")))
        pythons = {FORGE: Path(sys.executable), **peers(held, wanted)}
        server = Postgres(root / "pg")
        server.start()
        held.callback(server.stop)
        head(server.url)
        with ThreadPoolExecutor(len(pythons)) as pool:
            # Mostly they wait, each on a database of its own.
            looks = [
                pool.submit(look, one, python, server.url, root)
                for one, python in pythons.items()
                if one.name in wanted
            ]
            seen = [one.result() for one in looks]
    for line in table(seen):
        print(line)


def peers(held: ExitStack, wanted: list[str]) -> dict[Contender, Path]:
    """Install the peers, and return the Python of each; say why where it cannot be."""
    if not any(one.name in wanted for one in PEERS):
        return {}
    try:
        python = held.enter_context(environment())
    except CannotInstall as why:
        print(f"the peers could not be installed, and are left out: {why}\n")
        return {}
    return dict.fromkeys(PEERS, python)


def head(url: str) -> None:
    with psycopg.connect(url) as connection:
        found = connection.execute("SHOW server_version").fetchone()
    assert found is not None
    print(f"Postgres {found[0]}, Python {platform.python_version()}, limit {LIMIT_S} s\n")


def look(contender: Contender, python: Path, server: str, root: Path) -> Seen:
    """Run every scenario for one queue, each on a fresh database."""
    outcomes = []
    for scenario in (reported, went_on, poison):
        folder = root / f"{contender.name.lower()}_{scenario.__name__}"
        with stage(contender, python, server, folder) as made:
            outcomes.append(scenario(made))
    version = versions(python, contender.packages) if contender.packages else "Forge, this tree"
    first, second, third = outcomes
    assert isinstance(first, Reported)
    assert isinstance(second, WentOn)
    assert isinstance(third, Poison)
    return Seen(contender, version, first, second, third)


def table(seen: list[Seen]) -> Iterator[str]:
    """Return the tables in Markdown, and below them what the zombies logged."""
    yield "| | rescued after | zombie's completion, while the other runs | the other's completion |"
    yield "|---|---|---|---|"
    for one in seen:
        yield f"| {one.version} | {one.reported.given_s:.1f} s | {zombies(one)} | {others(one)} |"
    yield ""
    yield "| | a zombie whose job goes on | its late end | a job that kills its worker |"
    yield "|---|---|---|---|"
    for one in seen:
        yield f"| {one.version} | {stopped(one.went_on)} | {late(one)} | {killed(one)} |"
    for one in seen:
        yield f"\n{one.contender.name}: {one.contender.rescue}"
        yield f"  {one.reported}".split(", said=")[0]
        yield f"  workers alive: {one.reported.workers_alive}; {one.reported.by_hand}"
        yield f"  {one.went_on}".split(", said=")[0]
        for who, lines in (
            ("zombie, reports", one.reported.said),
            ("other, reports", one.reported.other_said),
            ("zombie, goes on", one.went_on.said),
        ):
            telling = [line[:WIDTH] for line in lines if TELLING.search(line)]
            yield from (f"  {who}: {line}" for line in telling[-4:])


def zombies(seen: Seen) -> str:
    found = seen.reported
    if found.state_then in seen.contender.done:
        return f"accepted: `{found.state_then}`"
    if not found.zombie_ended:
        return f"not made, its job was stopped: `{found.state_then}`"
    return f"refused: `{found.state_then}`"


def others(seen: Seen) -> str:
    found = seen.reported
    ran = "" if found.other_ran_on else ", whose job had been stopped"
    if found.state_then in seen.contender.done:
        return f"dropped{ran}: `{found.state_last}` before and after"
    took = "accepted" if found.state_last in seen.contender.done else "not accepted"
    return f"{took}{ran}: `{found.state_last}`"


def stopped(found: WentOn) -> str:
    if found.stopped_s is None:
        return f"runs to its end; `{found.state_then}` meanwhile"
    return f"its job is stopped, {found.stopped_s:.1f} s after it woke"


def late(seen: Seen) -> str:
    found = seen.went_on
    if found.stopped_s is not None:
        return "—"
    same = found.state_other == found.state_last and found.state_other in seen.contender.done
    return "changes nothing" if same else f"`{found.state_other}`, then `{found.state_last}`"


def killed(seen: Seen) -> str:
    found = seen.poison
    if found.state in seen.contender.done:
        return f"`{found.state}` after {found.runs} runs"
    if found.runs < MOST_RUNS:
        return f"not run again after {found.runs} runs: `{found.state}`"
    return f"still run again after {found.runs} runs"
