"""Runs the same tasks in both ways, and prints how many times the loop's time ours takes."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.commands.bed import running
from benchmarks.commands.measure import ROOT, Checkout

SLOTS = 4
# A task waits, so that other work on the machine counts little.
COMMAND = ("sleep", "0.01")
PROGRAMS = {
    "function": """
import sys, time

import forge_client as forge


@forge.job
def nap(number):
    time.sleep(0.01)
    return number


if __name__ == "__main__":
    count, per_job = map(int, sys.argv[1:])
    tasks = nap.map(range(count), per_job=per_job)
    assert [task.result() for task in tasks] == list(range(count))
""",
    "command": f"""
import sys

import forge_client as forge

count, per_job = map(int, sys.argv[1:])
with forge.Client() as client:
    sweep = client.benchmark(command={list(COMMAND)}, matrix={{"n": range(count)}}, per_job=per_job)
    points = sweep.wait()
    assert len(points) == count
""",
}
LOOPS = {
    "function": "import sys, time\nfor _ in range(int(sys.argv[1])): time.sleep(0.01)",
    "command": "import subprocess, sys\n"
    f"for _ in range(int(sys.argv[1])): subprocess.run({list(COMMAND)})",
}


def main(description: str | None) -> None:
    """Parse the options, measure and print."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--per-job", type=int, default=250)
    parser.add_argument("--pairs", type=int, default=3)
    asked = parser.parse_args()
    variables = {"FORGE_RUNNER": "process", "FORGE_CPUS": str(SLOTS)}
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), Checkout("now", ROOT), variables) as bed,
    ):
        env = bed.ways["a forge up"]
        for name, program in PROGRAMS.items():
            (bed.project / f"{name}.py").write_text(program)
            words = (sys.executable, f"{name}.py", str(asked.tasks), str(asked.per_job))
            ours = partial(subprocess.run, words, cwd=bed.project, env=dict(env), check=True)
            loop = partial(_looped, LOOPS[name], asked.tasks)
            pairs = [(_took(loop), _took(ours)) for _ in range(asked.pairs)]
            ratio = median(one / other for other, one in pairs)
            seconds = " | ".join(f"{median(times):.1f}" for times in zip(*pairs, strict=True))
            print(f"| {asked.tasks:,} calls of a {name} | {seconds} | {ratio:.2f} |", flush=True)


def _took(run: Callable[[], object]) -> float:
    begin = time.monotonic()
    run()
    return time.monotonic() - begin


def _looped(program: str, count: int) -> None:
    words = [sys.executable, "-c", program, str(count // SLOTS)]
    loops = [subprocess.Popen(words) for _ in range(SLOTS)]
    codes = [loop.wait() for loop in loops]
    if any(codes):
        raise RuntimeError(f"loops exited with {codes}")
