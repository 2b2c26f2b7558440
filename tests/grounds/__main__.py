"""Try Forge on other grounds: `make grounds GROUNDS_ARGS="--ground 'Debian 13' --part demo"`.

Builds the Debian releases that the declaration names, enters each in namespaces of its own, runs
the parts there, and prints a table. Exits with 1 if a part fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from grounds.declaration import GROUNDS
from grounds.run import Row, run
from grounds.table import lines, write
from grounds.trees import CLONE, prepared
from support.locked import locked

PAGE = CLONE / "docs" / "grounds.md"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "forge-grounds"


def main() -> int:
    """Run the parts that are wanted."""
    told = _parser().parse_args()
    wanted = [
        (ground, name, part)
        for ground in GROUNDS
        for name, part in ground.parts.items()
        if told.ground in ([], [ground.name]) or ground.name in told.ground
        if not told.part or name in told.part
    ]
    if told.list:
        sys.stdout.writelines(f"{ground.name}: {name}\n" for ground, name, _ in wanted)
        return 0
    if os.geteuid() != 0:
        sys.stderr.write(
            "grounds are entered as root: they have mounts and networks of their own\n"
        )
        return 2
    logs = told.trees / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for ground, name, part in wanted:
        try:
            # Another run would bring its own clone into the same tree.
            with locked(told.trees / "lock"):
                rows.append(run(ground, name, part, prepared(ground, told.trees), logs))
        except subprocess.CalledProcessError as error:
            sys.stderr.write(f"{ground.name} cannot be prepared: {error}\n")
            return 1
        sys.stdout.write(lines(rows[-1:]).splitlines()[-1] + "\n")
        sys.stdout.flush()
        if told.write:
            write(PAGE, rows)
    sys.stdout.write(f"\n{lines(rows)}\nlogs: {logs}\n")
    return 0 if all(row.works for row in rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="grounds", description=__doc__.partition("\n\n")[0])
    names = sorted({ground.name for ground in GROUNDS})
    parser.add_argument("--ground", action="append", default=[], choices=names, metavar="NAME")
    parser.add_argument("--part", action="append", default=[], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="print the grounds and their parts")
    parser.add_argument("--write", action="store_true", help=f"put the rows into {PAGE.name}")
    parser.add_argument("--trees", type=Path, default=CACHE, help="folder of the trees, kept")
    return parser


if __name__ == "__main__":
    sys.exit(main())
