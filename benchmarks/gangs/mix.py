"""The jobs: the seed determines which arrive when."""

import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from forge_schema.model.spec import JobSpec, Resources

OWNERS = ("ann", "ben", "cat")
MEMBER = Path(__file__).with_name("member.py")
SMALLEST, LARGEST = 2, 8
# Three in ten single jobs are long enough for gangs to have to wait for them.
SHORT = [["true"]] * 4 + [["sleep", "0.2"]] * 3
LONG = 3
LONG_S = (4.0, 16.0)
STAYS_S = (1.0, 6.0)


@dataclass(frozen=True)
class Arrival:
    """A job, and the seconds after which it is submitted."""

    at_s: float
    spec: JobSpec


def arrivals(seed: int, singles: int, gangs: int, seconds: float) -> list[Arrival]:
    """Return all jobs in the order in which they arrive; each size of gang is as frequent."""
    dice = Random(seed)  # noqa: S311  no secret hangs on it
    sizes = [SMALLEST + n % (LARGEST - SMALLEST + 1) for n in range(gangs)]
    nodes = [*sizes, *[1] * singles]
    dice.shuffle(nodes)
    times = sorted(dice.uniform(0, seconds) for _ in nodes)
    return [Arrival(at, _spec(dice, count)) for at, count in zip(times, nodes, strict=True)]


def _spec(dice: Random, nodes: int) -> JobSpec:
    given: dict[str, Any] = {"name": "single", "command": _command(dice)}
    if nodes > 1:
        stays = f"{dice.uniform(*STAYS_S):.2f}"
        given = {
            "name": f"gang of {nodes}",
            "command": [sys.executable, "-S", str(MEMBER)],
            "env": {"GANG_SIZE": str(nodes), "GANG_STAYS_S": stays},
            "nodes": nodes,
        }
    resources = Resources(cpus=1, memory_mb=64, disk_mb=16)
    return JobSpec(owner=dice.choice(OWNERS), resources=resources, **given)


def _command(dice: Random) -> list[str]:
    return dice.choice([*SHORT, *[["sleep", f"{dice.uniform(*LONG_S):.1f}"]] * LONG])
