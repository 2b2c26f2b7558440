"""CPU time, peak memory and duration of a process, with its children."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("client", "schema", "lambda", "worker")
PASS = (sys.executable, "-c", "pass")
FORGE = (
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'forge'; from forge_client.main import main; main()",
)


@dataclass(frozen=True)
class Cost:
    """What a process took."""

    cpu_ms: float
    peak_mib: float
    wall_ms: float


@dataclass(frozen=True)
class Checkout:
    """A copy of the sources, and its name in a table."""

    name: str
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """The variables with which Python imports these sources."""
        return {"PYTHONPATH": os.pathsep.join(str(self.folder / room) for room in ROOMS)}


def cost(command: Sequence[str], env: Mapping[str, str], folder: Path | None = None) -> Cost:
    """Run a command to its end.

    Raises:
        RuntimeError: it failed.
    """
    begin = time.perf_counter()
    child = subprocess.Popen(
        command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, spent = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{command} exited with {child.returncode}")
    wall = time.perf_counter() - begin
    return Cost(1000 * (spent.ru_utime + spent.ru_stime), spent.ru_maxrss / 1024, 1000 * wall)


def row(name: str, pairs: Iterable[tuple[Cost, Cost]]) -> str:
    """Return a line of a table: medians of some costs, each with one of `python -c pass`."""
    costs = list(pairs)
    ratios = [cost.cpu_ms / base.cpu_ms for cost, base in costs]
    low, middle, high = quantiles(ratios, n=4)
    cpu, peak = median(one.cpu_ms for one, _ in costs), median(one.peak_mib for one, _ in costs)
    return f"| {name} | {cpu:.0f} | {middle:.1f} | {low:.1f} to {high:.1f} | {peak:.0f} |"
