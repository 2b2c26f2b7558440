"""What the programs of a server take until they are ready, and `forge up -d` beside Postgres."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from urllib.parse import unquote

import psutil

from benchmarks.commands.bed import clean, forge
from benchmarks.commands.measure import FORGE, PASS, Checkout, Cost, cost, row

PROGRAMS = {
    "forge-server": ("from forge_functions.program import main; main()", b"listening on"),
    "forge-worker": ("from forge_worker.main import main; main()", b"worker_ready"),
    "forge-sweeper": ("from forge_schema.sweeper.main import main; main()", b""),
}
TICKS = os.sysconf("SC_CLK_TCK")
READY_S, LOOK_S = 60.0, 0.02
# Threads that had something to do at the start have ended by then.
REST_S = 30.0


def programs(direct: Mapping[str, str], checkouts: Sequence[Checkout], rounds: int) -> None:
    """Print what each program takes until it is ready, in each checkout in turn."""
    print("\n| until it is ready | CPU, ms | ratio | middle half | peak, MiB |")
    print("|---|---|---|---|---|")
    own = {
        "FORGE_SERVER_SECRET": "s" * 64, "FORGE_PORT": "0", "FORGE_HEALTH_PORT": "0",
        "FORGE_ALLOW_PROCESSES": "true",
    }  # fmt: skip
    for name, (code, word) in PROGRAMS.items():
        found: dict[str, list[tuple[Cost, Cost]]] = {one.name: [] for one in checkouts}
        for number in range(rounds):
            for checkout in checkouts:
                folder = Path(direct["FORGE_DIR"]).parent / f"{name}-{checkout.name}-{number}"
                more = {"FORGE_WORKER_DIR": str(folder), "FORGE_WORKER_NAME": folder.name}
                env = {**direct, **own, **more, **checkout.variables}
                found[checkout.name].append((ready(code, word, env), cost(PASS, env)))
        for checkout_name, pairs in found.items():
            print(row(f"`{name}`, {checkout_name}", pairs))


def ready(code: str, word: bytes, env: Mapping[str, str]) -> Cost:
    """Start a program, and return what it took until it wrote a word, or listened without one."""
    begin = time.perf_counter()
    log = Path(env["FORGE_WORKER_DIR"]).with_suffix(".log")
    with log.open("wb") as out:
        command = [sys.executable, "-c", code]
        child = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        while time.perf_counter() < begin + READY_S and child.poll() is None:
            if word in log.read_bytes() if word else _listens(child.pid):
                return _so_far(child.pid, time.perf_counter() - begin)
            time.sleep(LOOK_S)
        raise RuntimeError(f"it does not become ready: {log.read_text()}")
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait()


def _so_far(pid: int, wall_s: float) -> Cost:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    spent = sum(map(int, fields[11:15])) / TICKS
    return Cost(1000 * spent, int(peak[1]) / 1024 if peak else 0.0, 1000 * wall_s)


def _listens(pid: int) -> bool:
    """Tell whether a process has a socket that listens."""
    table = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    waiting = {line.split()[9] for line in table if line.split()[3] == "0A"}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found = re.match(r"socket:\[(\d+)\]", str(link.readlink()))
        except OSError:
            continue
        if found and found[1] in waiting:
            return True
    return False


def at_rest(folder: Path, checkout: Checkout) -> None:
    """Print the memory and the threads of a new `forge up` that has nothing to do."""
    print(f"\n| at rest, {checkout.name} | PSS, MB | threads |\n|---|---|---|")
    up = folder / f"rest-{checkout.name}"
    env = {**clean(folder), **checkout.variables, "FORGE_DIR": str(up)}
    forge("up", "-d", env=env)
    time.sleep(REST_S)
    above = psutil.Process(json.loads((up / "connection.json").read_text())["pid"])
    for process in [above, *above.children()]:
        if process.name() != "postgres":
            size = process.memory_full_info().pss / 1e6
            print(f"| {process.name()} | {size:.0f} | {process.num_threads()} |")
    forge("down", env=env)


def up_beside_postgres(folder: Path, checkouts: Sequence[Checkout], rounds: int) -> None:
    """Print how long `forge up -d` takes beside its Postgres alone, on one folder."""
    print("\n| until it answers | ms | Postgres alone, ms | with `forge ps`, ms | CPU, ms |")
    print("|---|---|---|---|---|")
    env = clean(folder)
    found: dict[str, list[tuple[Cost, Cost, float]]] = {one.name: [] for one in checkouts}
    for _ in range(rounds):
        for checkout in checkouts:
            mine = {**env, **checkout.variables}
            took, then = cost([*FORGE, "up", "-d"], mine), cost([*FORGE, "ps"], mine)
            forge("down", env=mine)
            found[checkout.name].append((took, then, _postgres_ms(folder / "up", mine)))
    for name, rows in found.items():
        wall = median(took.wall_ms for took, _, _ in rows)
        postgres = median(alone for _, _, alone in rows)
        both = median(took.wall_ms + then.wall_ms for took, then, _ in rows)
        cpu = median(took.cpu_ms for took, _, _ in rows)
        print(f"| `forge up -d`, {name} | {wall:.0f} | {postgres:.0f} | {both:.0f} | {cpu:.0f} |")


def _postgres_ms(folder: Path, env: Mapping[str, str]) -> float:
    """Start the Postgres of a folder as `forge up` does, and stop it again."""
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from forge_client.up.postgres import Postgres\n"
        "postgres = Postgres(Path(sys.argv[1]) / 'postgres')\npostgres.stop()\n"
        "begin = time.perf_counter()\npostgres.start()\n"
        "print(1000 * (time.perf_counter() - begin))\npostgres.stop()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, unquote(str(folder))], env=env, capture_output=True, check=True
    )
    return float(done.stdout)
