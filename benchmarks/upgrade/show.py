"""Fill a queue, upgrade it under its users, and print what they saw."""

import argparse
import json
import os
import platform
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from chaos.parts.old_version import ROOT, OldVersion, old_version
from forge_client.up.postgres import Postgres

from benchmarks.fleet.server import forge_server
from benchmarks.upgrade.locks import APPLICATION, Locks, watched
from benchmarks.upgrade.next_version import next_version
from benchmarks.upgrade.traffic import Request, Traffic, running, user, worker

USERS, WORKERS = 2, 4
BEFORE_S, TOGETHER_S, AFTER_S = 10.0, 10.0, 5.0
# Read or written by every submit, claim, heartbeat or end.
HOT = (
    *("job", "ready", "lease", "outcome", "attempt", "attempt_row", "slot", "lane", "queue"),
    *("worker", "idle", "shape", "job_status", "result", "event", "sweeper"),
)
LEFT = "SELECT (SELECT count(*) FROM job) - (SELECT count(*) FROM outcome)"
UPGRADES = "import sys; from forge_schema.database.migrate import upgrade; upgrade(sys.argv[1])"
CALLERS = """
import json, sys
from forge_schema.access.api_keys import Keys
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.database.pool import Database
from forge_schema.model.states import Role
with Database(sys.argv[1]) as database:
    keys, tokens = Keys(database, actor="user:me"), WorkerTokens(database, actor="user:me")
    print(json.dumps([
        [keys.create(f"user{n}", Role.SUBMITTER)[1] for n in range(int(sys.argv[2]))],
        [tokens.create(f"w{n}")[1] for n in range(int(sys.argv[3]))],
    ]))
"""


@dataclass(frozen=True)
class Seen:
    """What one upgrade did to the queue's users."""

    name: str
    requests: list[Request]
    upgrade: tuple[float, float]
    locks: Locks


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50_000, help="jobs that have ended before")
    jobs = parser.parse_args().jobs
    with TemporaryDirectory(prefix="forge-upgrade-") as folder:
        root = Path(folder)
        this, later = OldVersion(ROOT), next_version(root / "next")
        seen = [once("this version to a later one", this, later, root / "a", jobs)]
        # Git's history may have none.
        if before := old_version(root / "before"):
            seen.insert(
                0, once("the release before to this version", before, this, root / "b", jobs)
            )
    print(f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}, {jobs} ended jobs\n")
    print("| upgrade | it took, s | requests | failed | longest before, s | during | after |")
    print("|---|---|---|---|---|---|---|")
    for one in seen:
        row(one)
    print("\n| upgrade | longest stop of | of | s |\n|---|---|---|---|")
    for one in seen:
        seconds, table, what = one.locks.longest(HOT)[0]
        print(f"| {one.name} | `{table}` | {what} | {seconds:.2f} |")
    for one in seen:
        for request in [r for r in one.requests if r.failed][:5]:
            since = request.began - one.upgrade[0]
            print(f"failed: {request.verb}, {since:.1f} s after the upgrade began: {request.said}")


def once(name: str, old: OldVersion, new: OldVersion, root: Path, jobs: int) -> Seen:
    """Upgrade one queue, from an old server to a new one."""
    root.mkdir()
    with postgres(root) as url:
        old.migrate(url)
        words = [sys.executable, "-c", CALLERS, url, str(USERS), str(WORKERS)]
        keys, tokens = json.loads(subprocess.check_output(words, env=os.environ | old.environment))
        same = {"FORGE_SERVER_SECRET": secrets.token_hex(32), "FORGE_LONG_POLL_S": "0"}
        with forge_server(url, root, more=same | old.environment) as server:
            traffic = Traffic(server.base)
            fill(traffic, keys[0], tokens[0], jobs)
            callers = [(user, key, 5) for key in keys] + [(worker, token, 5) for token in tokens]
            with running(traffic := Traffic(server.base), *callers):
                time.sleep(BEFORE_S)
                with watched(url) as locks:
                    began = time.monotonic()
                    migrate(url, new)
                    upgrade = (began, time.monotonic())
                # Those of the old version go on, then everybody comes to the new server.
                with forge_server(url, root, more=same | new.environment) as newer:
                    time.sleep(TOGETHER_S)
                    traffic.server = newer.base
                    time.sleep(AFTER_S)
                    traffic.full.set()
                    while left(url):
                        time.sleep(0.2)
                    traffic.stop.set()
        return Seen(name, traffic.requests, upgrade, locks)


def left(url: str) -> int:
    """Return how many jobs have not ended."""
    with psycopg.connect(url) as connection:
        row = connection.execute(LEFT).fetchone()
    assert row is not None
    count: int = row[0]
    return count


def fill(traffic: Traffic, key: str, token: str, jobs: int) -> None:
    """Let many jobs pass through the queue, so that its tables are not empty."""
    with running(traffic, (user, key, 100), (worker, token, 100)):
        while traffic.ended < jobs:
            time.sleep(0.1)
            assert not [one for one in traffic.requests if one.failed], traffic.requests[-1]


def migrate(url: str, new: OldVersion) -> None:
    """Migrate as `forge db upgrade` does, in a process of its own."""
    named = f"{url}{'&' if '?' in url else '?'}application_name={APPLICATION}"
    words = [sys.executable, "-c", UPGRADES, named]
    subprocess.run(words, env=os.environ | new.environment, check=True)


@contextmanager
def postgres(root: Path) -> Iterator[str]:
    """Run a Postgres and yield the URL of its database."""
    server = Postgres(root / "pg")
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


def row(seen: Seen) -> None:
    """Print what the users saw, by the time at which their requests ended."""
    began, ended = seen.upgrade

    def longest(since: float, until: float) -> float:
        return max(r.took_s for r in seen.requests if since <= r.began + r.took_s < until)

    failed = sum(request.failed for request in seen.requests)
    print(
        f"| {seen.name} | {ended - began:.1f} | {len(seen.requests)} | {failed} | "
        f"{longest(0, began):.2f} | {longest(began, ended + 1):.2f} | "
        f"{longest(ended + 1, float('inf')):.2f} |"
    )
