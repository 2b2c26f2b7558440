"""One part of one ground, in namespaces of its own, and what came of it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

from grounds.trees import THERE

if TYPE_CHECKING:
    from grounds.declaration import Ground, Part

ENTER = Path(__file__).with_name("enter.sh")
# pytest's sum, and its lines about tests that failed.
SUMMED = re.compile(r"\d+ (?:passed|failed|skipped|errors?)\b.* in [\d.]+s")
COUNTS = re.compile(r"\d+ (?:passed|failed|skipped|errors?)\b")
FAILED = re.compile(r"^(?:FAILED|ERROR) \S*?(test_\w+\.py::\S+)", re.MULTILINE)
MOST_NAMED = 3
# What stands in a log before the versions, and before the part itself.
VERSIONS, RUNS = "== versions", "== runs"
# What the parts' commands take from the caller: how many processes, how long.
PASSED_ON = ("PROCESSES", "SEED", "MINUTES")
LONGEST_S = 3 * 3600


@dataclass(frozen=True)
class Row:
    """What the table says about a part."""

    ground: str
    part: str
    result: str
    versions: str
    seconds: int
    date: str

    @property
    def key(self) -> tuple[str, str]:
        return self.ground, self.part

    @property
    def works(self) -> bool:
        return self.result.startswith("works")


def run(ground: Ground, name: str, part: Part, tree: Path, logs: Path) -> Row:
    """Run a part, with its output in a file of `logs`."""
    began = time.monotonic()
    log = logs / f"{ground.name} {name}.log".replace(" ", "-").lower()
    with log.open("wb") as output:
        status = _status(ground, part, tree, output)
    seconds = round(time.monotonic() - began)
    said = log.read_text("utf-8", "replace")
    result = outcome(status, said, ground.works_with)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    return Row(ground.name, name, result, versions(said), seconds, today)


def _status(ground: Ground, part: Part, tree: Path, output: IO[bytes]) -> int:
    ours = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    given = {**ground.variables, **ours}
    variables = [f"{name}={value}" for name, value in given.items()]
    command = f"echo '{VERSIONS}'; {ground.versions}; echo '{RUNS}'; {part.command}"
    words = [f"/{THERE}/tests/grounds/inside.sh", part.user, command, *variables, *ground.start]
    return subprocess.run(
        ["bash", ENTER, tree, "bash", *words],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        timeout=LONGEST_S,
        check=False,
    ).returncode


def versions(output: str) -> str:
    """Return what a part's output says about versions; nothing if its services did not start."""
    _, _, said = output.partition(f"{VERSIONS}\n")
    return ", ".join(said.partition(f"{RUNS}\n")[0].split("\n")).strip(", ")


def outcome(status: int, output: str, works_with: str = "") -> str:
    """Return what a part's output and exit code come to, as a cell of a table."""
    summed = [line for line in output.splitlines() if SUMMED.search(line)]
    # A second run is of what failed in the first.
    counts = "; then ".join(", ".join(COUNTS.findall(line)) for line in summed)
    if status == 0:
        return "works" + (f" with {works_with}" if works_with else "") + _beside(counts)
    failed = sorted(set(FAILED.findall(output)))
    more = [f"and {len(failed) - MOST_NAMED} more"] if len(failed) > MOST_NAMED else []
    named = ", ".join([f"`{one}`" for one in failed[:MOST_NAMED]] + more).replace("|", "\\|")
    return (
        "fails" + (_beside(counts) or f" with exit code {status}") + (f": {named}" if named else "")
    )


def _beside(counts: str) -> str:
    return f" ({counts})" if counts else ""
