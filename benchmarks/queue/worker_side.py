"""Forge's real worker, with all its loops, on handlers that do nothing."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Semaphore, Thread
from typing import TYPE_CHECKING
from unittest.mock import patch

import psycopg
from forge_schema.model.lease import End
from forge_schema.model.states import Reason
from forge_worker.agent.agent import Agent
from forge_worker.connect import connect
from forge_worker.job_runs import job_run
from forge_worker.runners.choice import available
from forge_worker.settings.settings import WorkerSettings

if TYPE_CHECKING:
    # The other side of a comparison may have it in another module.
    from forge_worker.attempt import LiveAttempt

SLOTS = 64
PATIENCE_S = 60


class Gate:
    """Lets jobs end, so many at a time; the next ones wait in all slots.

    A job that begins or ends wakes no other one: that would be measured too.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._lock = Lock()
        self._may_end = Semaphore(0)
        self._full = Event()
        self._began, self._expected = 0, slots

    def run(self, attempt: LiveAttempt, *_: object) -> End:
        """Stand in for the job's run: wait, and succeed."""
        with self._lock:
            self._began += 1
            if self._began == self._expected:
                self._full.set()
        self._may_end.acquire()
        return End(attempt.fence, Reason.SUCCEEDED, 0)

    def pass_on(self, jobs: int, _: int = 0) -> int:
        """Let this many jobs end, and wait until every slot has its next one."""
        self._full.clear()
        self._expected += jobs
        self._may_end.release(jobs)
        self.fill()
        return jobs

    def fill(self) -> None:
        """Wait until every slot has a job."""
        # A slot's next job comes with the answer to the end of the one before.
        assert self._full.wait(PATIENCE_S), "the worker stands still"

    def open(self) -> None:
        """Let the jobs of all slots end."""
        self._may_end.release(self._slots)


@contextmanager
def worker(url: str, root: Path, slots: int = SLOTS) -> Iterator[Callable[[int, int], int]]:
    """Have a worker with so many slots run in this process; yield what passes jobs through it."""
    gate = Gate(slots)
    settings = _settings(url, root, slots)
    with patch.object(job_run, "run", gate.run), connect(settings) as transport:
        agent = Agent(settings, transport.gateway, transport.objects, available(settings))
        with transport.loops(work=agent.claim_loop.wake, asked=agent.lease_renewal.wake):
            # As its program does.
            gc.freeze()
            thread = Thread(target=agent.run, name="worker")
            thread.start()
            try:
                gate.fill()
                yield gate.pass_on
            finally:
                agent.leaving.drain()
                gate.open()
                thread.join()
    with psycopg.connect(url, autocommit=True) as connection:
        # Its listener looks whether it is to end when a hint comes.
        connection.execute("NOTIFY forge")


def _settings(url: str, root: Path, slots: int) -> WorkerSettings:
    (root / "store").mkdir()
    (root / "worker").mkdir()
    return WorkerSettings.model_validate(
        {
            "database_url": url,
            "store_url": (root / "store").as_uri(),
            "worker_name": "bench",
            "worker_dir": root / "worker",
            "runner": "process",
            "allow_processes": True,
            "max_jobs": slots,
            "cpus": slots,
            "disk_floor_mb": 0,
            "sweep": False,
        }
    )
