"""What everyday commands cost, as a multiple of `import pydantic`: CPU time, measured in pairs.

`python benchmarks/commands` prints the tables of RESULTS.md; `--before FOLDER` adds an earlier
checkout, whose commands run in turn with these.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("client", "schema", "lambda", "worker")
BASE = (sys.executable, "-c", "import pydantic")
FORGE = (sys.executable, "-c", "from forge_client.main import main; main()")
COMMANDS = {
    "ps": ("ps",),
    "show": ("show", "1"),
    "logs": ("logs", "1"),
    "submit": ("submit", ".", "--", "true"),
}


def main() -> None:
    """Measure, and print one table per way to the queue."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--before", type=Path, help="an earlier checkout")
    given = parser.parse_args()
    checkouts = [one.resolve() for one in (given.before, ROOT) if one]
    with tempfile.TemporaryDirectory(prefix="forge-commands-") as folder:
        project = Path(folder, "project")
        project.mkdir()
        (project / "train.py").write_text("print('hello')\n")
        with running(Path(folder)) as ways:
            for way, variables in ways.items():
                table(way, variables, checkouts, project, given.rounds)


@contextmanager
def running(folder: Path) -> Iterator[Mapping[str, Mapping[str, str]]]:
    """Start a `forge up` with one job; yield the variables for each way to reach it."""
    clean = {n: value for n, value in os.environ.items() if not n.startswith("FORGE_")}
    env = {
        **clean,
        "XDG_STATE_HOME": str(folder),
        "FORGE_DIR": str(folder / "up"),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    forge("up", "-d", "--port", "8976", env=env)
    try:
        key = forge("key", "create", "--owner", "ann", "--role", "admin", env=env)
        server = {**env, "FORGE_URL": "http://127.0.0.1:8976", "FORGE_API_KEY": key}
        forge("submit", "--wait", str(folder / "project"), "--", "true", env=server)
        up = json.loads((folder / "up" / "connection.json").read_text())
        direct = {
            **env,
            "FORGE_DATABASE_URL": up["database_url"],
            "FORGE_STORE_URL": up["store_url"],
        }
        yield {"through a server": server, "direct access": direct}
    finally:
        forge("down", env=env)


def forge(*words: str, env: Mapping[str, str]) -> str:
    """Run a command and return its output."""
    done = subprocess.run(
        [*FORGE, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    return done.stdout.decode().strip()


def table(
    way: str,
    variables: Mapping[str, str],
    checkouts: Sequence[Path],
    project: Path,
    rounds: int,
) -> None:
    """Measure each command in each checkout, in turn with the base, and print the medians."""
    print(f"\n| {way} | checkout | CPU, ms | import pydantic, ms | ratio | middle half |")
    print("|---|---|---|---|---|---|")
    for name, words in COMMANDS.items():
        found: dict[Path, list[tuple[float, float]]] = {one: [] for one in checkouts}
        for _ in range(rounds):
            for checkout in checkouts:
                path = os.pathsep.join(str(checkout / room) for room in ROOMS)
                env = {**variables, "PYTHONPATH": path}
                found[checkout].append((cpu_ms([*FORGE, *words], env, project), base_ms(env)))
        for checkout, pairs in found.items():
            took, base = (statistics.median(column) for column in zip(*pairs, strict=True))
            low, ratio, high = statistics.quantiles([a / b for a, b in pairs], n=4)
            which = "this" if checkout == ROOT else "before"
            print(
                f"| `forge {name}` | {which} | {took:.0f} | {base:.0f} | {ratio:.1f}"
                f" | {low:.1f} to {high:.1f} |"
            )


def base_ms(env: Mapping[str, str]) -> float:
    """Return what the base takes."""
    return cpu_ms(BASE, env, Path())


def cpu_ms(command: Sequence[str], env: Mapping[str, str], folder: Path) -> float:
    """Run a command and return its CPU time, with that of its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
    return 1000 * spent


if __name__ == "__main__":
    main()
