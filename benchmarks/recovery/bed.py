"""A queue, a folder as its store, and workers as processes, one of them always spare."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forge_client.up.postgres import Postgres
from forge_schema.database import migrate
from forge_schema.database.pool import Database
from forge_schema.model.spec import JobSpec, Resources
from forge_schema.queue.queue import Queue

from benchmarks.recovery import job
from benchmarks.zombie.worker import Worker

# A tenth of the defaults.
TTL_S, HEARTBEAT_S, SWEEP_S, POLL_S = 12.0, 3.0, 1.0, 0.5
CHECKPOINT_S = 3.0
LOOK_S = 0.01
PATIENCE_S = 120.0

Note = dict[str, Any]


class Bed:
    """Has two workers up; whoever has the job may be taken away."""

    def __init__(self, database: Database, root: Path) -> None:
        self.queue = Queue(database, actor="user:ann")
        self._root = root
        self._made = 0
        self._environments: list[dict[str, str]] = []
        self.workers: list[Worker] = []

    def fill(self) -> None:
        """Have two workers that are ready."""
        self.workers = [one for one in self.workers if one.alive]
        while len(self.workers) < 2:
            self.workers.append(self._worker())

    def submit(self) -> "Run":
        """Submit the job and wait until it counts."""
        self._made += 1
        notes = self._root / f"notes-{self._made}"
        spec = JobSpec(
            name="count",
            owner="ann",
            command=[sys.executable, job.__file__],
            env={"RECOVERY_NOTES": str(notes)},
            resources=Resources(cpus=1, memory_mb=128, disk_mb=100),
            checkpoint_interval_s=CHECKPOINT_S,
        )
        return Run(self.queue.submit([spec])[0], notes)

    def holder(self, run: "Run") -> Worker:
        """Return the worker that has a job."""
        pid = run.last(1)["pid"]
        return next(worker for worker in self.workers if worker.has(pid))

    def end(self) -> None:
        """Kill the workers, and clear away what all that were killed left on this machine."""
        for worker in self.workers:
            worker.kill()
        for environment in self._environments:
            command = [sys.executable, "-m", "forge_worker.main", "--recover"]
            done = subprocess.run(
                command, env={**os.environ, **environment}, capture_output=True, check=False
            )
            assert done.returncode == 0, done.stderr

    def _worker(self) -> Worker:
        self._made += 1
        folder = self._root / f"worker-{self._made}"
        said = self._root / f"worker-{self._made}.log"
        given = {
            "database_url": self.queue.database.url,
            "store_url": (self._root / "store").as_uri(),
            "worker_name": folder.name,
            "worker_dir": folder,
            "runner": "process",
            "allow_processes": True,
            "cpus": 1,
            "lease_ttl_s": TTL_S,
            "heartbeat_s": HEARTBEAT_S,
            "sweep_s": SWEEP_S,
            "poll_s": POLL_S,
            "disk_floor_mb": 0,
        }
        environment = {f"FORGE_{name.upper()}": str(value) for name, value in given.items()}
        self._environments.append(environment)
        worker = Worker([sys.executable, "-m", "forge_worker.main"], environment, said)
        until(lambda: b"ready" in said.read_bytes())
        return worker


class Run:
    """One job, as its notes tell it."""

    def __init__(self, job_id: int, notes: Path) -> None:
        self.job_id = job_id
        self._notes = notes

    def notes(self, attempt: int) -> list[Note]:
        """Return what an attempt has noted, step by step."""
        text = self._notes.read_text(encoding="utf-8") if self._notes.exists() else ""
        # A line that is being written has no end yet.
        lines = text.rpartition("\n")[0].splitlines()
        return [note for note in map(json.loads, lines) if note["attempt"] == attempt]

    def last(self, attempt: int) -> Note:
        return self.notes(attempt)[-1]

    def wait(self, attempt: int, step: int) -> Note:
        """Wait until an attempt has come to a step, and return that note."""
        until(lambda: bool(self.notes(attempt)) and self.last(attempt)["step"] >= step)
        return next(note for note in self.notes(attempt) if note["step"] >= step)


@contextmanager
def bed(root: Path) -> Iterator[Bed]:
    """Start Postgres, and end everything in the end."""
    (root / "store").mkdir()
    server = Postgres(root / "pg")
    server.start()
    try:
        migrate.upgrade(server.url)
        with Database(server.url) as database:
            made = Bed(database, root)
            try:
                yield made
            finally:
                made.end()
    finally:
        server.stop()


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds.

    Raises:
        AssertionError: it does not come to hold.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(LOOK_S)
