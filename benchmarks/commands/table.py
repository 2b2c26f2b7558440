"""The tables: each command and program, in each checkout, beside peers."""

import argparse
import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.commands.bed import Bed, running
from benchmarks.commands.measure import FORGE, PASS, ROOT, Checkout, Cost, cost, row
from benchmarks.commands.programs import at_rest, programs, up_beside_postgres

# Of each, the words and the variables with which a shell has it complete a word.
COMMANDS = {
    "ps": (("ps",), {}),
    "show": (("show", "1"), {}),
    "logs": (("logs", "1"), {}),
    "ps -o json": (("ps", "-o", "json"), {}),
    "show -o json": (("show", "1", "-o", "json"), {}),
    "logs -f": (("logs", "-f", "1"), {}),
    "cancel": (("cancel",), {}),
    "report show": (("report", "show", "sla"), {}),
    "submit": (("submit", ".", "--", "true"), {}),
    "submit, forge.toml": (("submit", "../described", "--env", "SEED=2", "--delay", "1d"), {}),
    "--help": (("--help",), {}),
    "--version": (("--version",), {}),
    "ps --st<Tab>": ((), {"COMP_WORDS": "forge ps --st", "COMP_CWORD": "2"}),
    "show <Tab>": ((), {"COMP_WORDS": "forge show ", "COMP_CWORD": "2"}),
}
PARTS = ("commands", "programs", "up", "rest")


def main(about: str | None) -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--before", type=Path, help="an earlier checkout")
    parser.add_argument("--peer", action="append", default=[], help="a command of another tool")
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--way", action="append", help="default: all ways to the queue")
    given = parser.parse_args()
    checkouts = [Checkout("now", ROOT)]
    if given.before:
        checkouts.insert(0, Checkout("before", given.before.resolve()))
    parts = given.part or PARTS
    with tempfile.TemporaryDirectory(prefix="forge-commands-") as name:
        folder = Path(name)
        if "rest" in parts:
            for checkout in checkouts:
                at_rest(folder, checkout)
        with running(folder, checkouts[-1]) as bed:
            if "commands" in parts:
                for way in given.way or bed.ways:
                    commands(bed, way, checkouts, given.rounds, given.peer)
            if "programs" in parts:
                programs(bed.ways["direct"], checkouts, given.rounds)
        if "up" in parts:
            up_beside_postgres(folder, checkouts, given.rounds)


def commands(
    bed: Bed, way: str, checkouts: Sequence[Checkout], rounds: int, peers: Sequence[str]
) -> None:
    """Print what each command takes in each checkout, and each peer, in turn with the base."""
    print(f"\n| {way} | CPU, ms | ratio | middle half | peak, MiB |")
    print("|---|---|---|---|---|")
    for name, (words, shell) in COMMANDS.items():
        found: dict[str, list[tuple[Cost, Cost]]] = {one.name: [] for one in checkouts}
        for _ in range(rounds):
            for checkout in checkouts:
                env = {**bed.ways[way], **checkout.variables, **shell}
                if shell:
                    env["_FORGE_COMPLETE"] = "complete_bash"
                more = (bed.submitted(),) if name == "cancel" else ()
                took = cost([*FORGE, *words, *more], env, bed.project)
                found[checkout.name].append((took, cost(PASS, env)))
        for checkout_name, pairs in found.items():
            print(row(f"`forge {name}`, {checkout_name}", pairs), flush=True)
    env = dict(os.environ)
    for peer in peers:
        pairs = [(cost(shlex.split(peer), env), cost(PASS, env)) for _ in range(rounds)]
        print(row(f"`{Path(peer).name}`", pairs), flush=True)
