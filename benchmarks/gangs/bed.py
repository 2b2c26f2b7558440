"""A queue, a folder as its store, and eight workers as processes with room for two jobs each."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forge_client.up.postgres import Postgres
from forge_schema.database import migrate
from forge_schema.database.pool import Database

from benchmarks.gangs import witness
from benchmarks.zombie.stage import until
from benchmarks.zombie.worker import Worker

WORKERS, PLACES = 8, 2
# How long a prepared member waits for the others; a tenth of the default.
PATIENCE_S = 60.0
BEGIN_S = LEAVE_S = 120.0
WORKER = [sys.executable, "-m", "forge_worker.main"]


@contextmanager
def bed(root: Path) -> Iterator[Database]:
    """Start everything, and have the workers leave in the end.

    Raises:
        AssertionError: a worker did not start, or did not leave.
    """
    (root / "store").mkdir()
    server = Postgres(root / "pg")
    server.start()
    try:
        migrate.upgrade(server.url)
        witness.install(server.url)
        with Database(server.url) as database, _workers(root, server.url):
            yield database
    finally:
        server.stop()


@contextmanager
def _workers(root: Path, url: str) -> Iterator[None]:
    environments = [_environment(root, url, f"worker-{n}") for n in range(WORKERS)]
    logs = [root / f"worker-{n}.log" for n in range(WORKERS)]
    workers = [Worker(WORKER, *each) for each in zip(environments, logs, strict=True)]
    try:
        assert until(lambda: all(b"ready" in log.read_bytes() for log in logs), BEGIN_S)
        yield
        for worker in workers:
            worker.terminate()
        assert until(lambda: not any(worker.alive for worker in workers), LEAVE_S)
    finally:
        for worker, environment in zip(workers, environments, strict=True):
            if worker.alive:
                worker.kill()
                given = {**os.environ, **environment}
                subprocess.run([*WORKER, "--recover"], env=given, check=True)


def _environment(root: Path, url: str, name: str) -> dict[str, str]:
    given = {
        "database_url": url,
        "store_url": (root / "store").as_uri(),
        "worker_name": name,
        "worker_dir": root / name,
        "lock_dir": root / "locks",
        "runner": "process",
        "allow_processes": True,
        "gpus": "none",
        "cpus": PLACES,
        "memory_mb": 1024,
        "disk_mb": 1000,
        "disk_floor_mb": 0,
        "gang_patience_s": PATIENCE_S,
    }
    return {f"FORGE_{key.upper()}": str(value) for key, value in given.items()}
