"""Forge, driven as its worker drives it: the queue's verbs, and the listener for dispatch."""

from queue import SimpleQueue
from threading import Event
from time import perf_counter
from uuid import uuid4

import psycopg
from forge_schema.database.pool import Database
from forge_schema.model.lease import End, Grant
from forge_schema.model.spec import JobSpec
from forge_schema.model.states import Reason
from forge_schema.model.worker import Capacity, Machine
from forge_schema.queue.queue import LEASE_TTL, Queue
from forge_worker.queue.gateway import SqlGateway
from forge_worker.queue.listener import Listener

FREE = Capacity(cpus=1000, memory_mb=1 << 24, disk_mb=1 << 28)
SPEC = JobSpec(name="bench", command=["python", "train.py"], owner="ann")
URGENT = SPEC.model_copy(update={"priority": 10})
SETTLE_S = 0.02


class ForgeSide:
    """One worker on one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.database = Database(url).open()
        self.queue = Queue(self.database, actor="user:ann")
        self.gateway = SqlGateway(self.database, name="bench", ttl=LEASE_TTL)
        self.gateway.register(Machine(uuid4(), 1000, 1 << 24, 1 << 28))
        self._held: list[Grant] = []
        self._claimed: SimpleQueue[tuple[float, Grant]] = SimpleQueue()
        self._idle = Event()
        self._listening = False
        self._listener = Listener(url, work=self._work, asked=lambda _: None)

    def close(self) -> None:
        self._listener.end()
        with psycopg.connect(self.url, autocommit=True) as connection:
            # It looks whether it is to end when a hint comes.
            connection.execute("NOTIFY forge")
        Event().wait(SETTLE_S)
        self.database.close()

    def feed(self, jobs: int) -> None:
        """Have this many more jobs ready."""
        for start in range(0, jobs, 5000):
            self.queue.submit([SPEC] * min(5000, jobs - start))

    def turn(self, count: int) -> None:
        """Finish what is held and claim `count` jobs, in one round trip."""
        ends = [End(grant.fence, Reason.SUCCEEDED) for grant in self._held]
        _, self._held = self.gateway.finish_and_claim(ends, FREE, count)
        assert len(self._held) == count, "the queue ran dry"

    def rate(self, jobs: int, count: int) -> float:
        """Return the jobs per second of passing `jobs` jobs, `count` at a time."""
        began = perf_counter()
        for _ in range(jobs // count):
            self.turn(count)
        return jobs / (perf_counter() - began)

    def drain(self) -> None:
        """Finish what is held, and take everything out of `ready`."""
        while True:
            ends = [End(grant.fence, Reason.SUCCEEDED) for grant in self._held]
            _, self._held = self.gateway.finish_and_claim(ends, FREE, 100)
            if not self._held:
                return

    def dispatch(self, jobs: int) -> list[float]:
        """Return the seconds from submit to the moment when an idle worker holds the job.

        The job is urgent, so that it is the next one however many wait.
        """
        if not self._listening:
            self._listening = True
            self._listener.start()
        return [self._dispatched() for _ in range(jobs)]

    def _work(self) -> None:
        if self._idle.is_set():
            self.gateway.new_work()
            _, grants = self.gateway.finish_and_claim([], FREE, 1)
            if grants:
                self._claimed.put((perf_counter(), grants[0]))

    def _dispatched(self) -> float:
        self._idle.set()
        began = perf_counter()
        [job_id] = self.queue.submit([URGENT])
        at, grant = self._claimed.get(timeout=30)
        while grant.fence.job_id != job_id:
            self.gateway.finish([End(grant.fence, Reason.SUCCEEDED)])
            at, grant = self._claimed.get(timeout=30)
        self._idle.clear()
        self.gateway.finish([End(grant.fence, Reason.SUCCEEDED)])
        # The hint that this sends must not be taken for the next job's.
        Event().wait(SETTLE_S)
        return at - began
