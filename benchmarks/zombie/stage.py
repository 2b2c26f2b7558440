"""One queue on a database of its own, with one job, and what can be seen of it."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg

from benchmarks.zombie.contenders import LIMIT_S, Contender
from benchmarks.zombie.worker import ROOT, Worker

LOOK_S = 0.05
# Long enough for any of the queues to have written what its handlers returned.
SETTLE_S = 5.0
BEGIN_S = 90.0


@dataclass
class Stage:
    """Everything that one scenario needs of one queue; `python` is that of its environment."""

    contender: Contender
    python: Path
    url: str
    folder: Path
    workers: list[Worker] = field(default_factory=list)

    def call(self, verb: str) -> str:
        """Run one of the queue's verbs to its end and return what it printed."""
        done = subprocess.run(
            self._command(verb),
            cwd=ROOT,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def worker(self) -> Worker:
        """Start one more worker."""
        said = self.folder / f"worker-{len(self.workers) + 1}.log"
        made = Worker(self._command("work"), self._environment(), said)
        self.workers.append(made)
        return made

    def state(self) -> str:
        """Return where the job is, in the queue's own word."""
        with psycopg.connect(self.url) as connection:
            found = connection.execute(self.contender.state.encode()).fetchone()
        return str(found[0]) if found else "not there"

    def notes(self, run: int, *words: str) -> list[dict[str, Any]]:
        """Return what a run of the job noted, of these words."""
        file = self.folder / "notes"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        every = [json.loads(line) for line in lines]
        return [one for one in every if one["run"] == run and one["what"] in words]

    def began(self, run: int, timeout: float = BEGIN_S) -> dict[str, Any]:
        """Wait for a run of the job and return its first note.

        Raises:
            AssertionError: it did not begin.
        """
        assert until(lambda: bool(self.notes(run, "began")), timeout), (
            f"{self.contender.name}: run {run} did not begin"
        )
        return self.notes(run, "began")[0]

    def runs(self, run: int) -> bool:
        """Tell whether a run of the job goes on."""
        pid = self.notes(run, "began")[0]["pid"]
        return not self.notes(run, "ended", "stopped") and psutil.pid_exists(pid)

    def over(self, run: int, timeout: float) -> float | None:
        """Wait for a run's end, and for what its worker then writes.

        Returns:
            The seconds to its end; None if it goes on.
        """
        began = time.monotonic()
        ended = until(lambda: not self.runs(run), timeout)
        took = time.monotonic() - began
        time.sleep(SETTLE_S)
        return took if ended else None

    def let_end(self, run: int) -> None:
        """Let a run of the job return."""
        (self.folder / f"end-{run}").touch()

    def _command(self, verb: str) -> list[str]:
        return [str(self.python), "-m", f"benchmarks.zombie.peers.{self.contender.module}", verb]

    def _environment(self) -> dict[str, str]:
        return {
            "ZOMBIE_URL": self.url,
            "ZOMBIE_FOLDER": str(self.folder),
            "ZOMBIE_LIMIT_S": str(LIMIT_S),
        }


@contextmanager
def stage(contender: Contender, python: Path, server: str, folder: Path) -> Iterator[Stage]:
    """Make a database with the queue and one job; at the end nothing of it is left."""
    folder.mkdir()
    name = folder.name
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    made = Stage(contender, python, server.replace("/postgres?", f"/{name}?"), folder)
    made.call("prepare")
    try:
        yield made
    finally:
        for worker in made.workers:
            worker.kill()
        if contender.is_forge:
            made.call("tidy")


def until(holds: Callable[[], bool], timeout: float) -> bool:
    """Wait until something holds; tell whether it came to."""
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True
