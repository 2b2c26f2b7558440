"""Forge's real worker, with all its loops, on handlers that do nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Thread
from unittest.mock import patch

import psycopg
from forge_schema.model.lease import End
from forge_schema.model.states import Reason
from forge_worker.agent.agent import Agent
from forge_worker.attempt.attempt import Attempt
from forge_worker.connect import connect
from forge_worker.job_runs import job_run
from forge_worker.runners.choice import available
from forge_worker.settings.settings import WorkerSettings

SLOTS = 64
PATIENCE_S = 60


class Gate:
    """Lets jobs end, so many at a time; the next ones wait in all slots."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._changed = Condition()
        self._began = self._may_end = self._ended = 0
        self._open = False

    def run(self, attempt: Attempt, *_: object) -> End:
        """Stand in for the job's run: wait, and succeed."""
        with self._changed:
            self._began += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._open or self._ended < self._may_end)
            self._ended += 1
        return End(attempt.fence, Reason.SUCCEEDED, 0)

    def pass_on(self, jobs: int, _: int = 0) -> int:
        """Let this many jobs end, and wait until every slot has its next one."""
        with self._changed:
            self._may_end += jobs
            self._changed.notify_all()
            self._full()
        return jobs

    def fill(self) -> None:
        """Wait until every slot has a job."""
        with self._changed:
            self._full()

    def open(self) -> None:
        """Let all jobs end from now on."""
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def _full(self) -> None:
        # A slot's next job comes with the answer to the end of the one before.
        full = self._changed.wait_for(
            lambda: self._began >= self._may_end + self._slots, PATIENCE_S
        )
        assert full, "the worker stands still"


@contextmanager
def worker(url: str, root: Path, slots: int = SLOTS) -> Iterator[Callable[[int, int], int]]:
    """Have a worker with so many slots run in this process; yield what passes jobs through it."""
    gate = Gate(slots)
    settings = _settings(url, root, slots)
    with patch.object(job_run, "run", gate.run), connect(settings) as transport:
        agent = Agent(settings, transport.gateway, transport.objects, available(settings))
        with transport.loops(work=agent.claim_loop.wake, asked=agent.lease_renewal.wake):
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
