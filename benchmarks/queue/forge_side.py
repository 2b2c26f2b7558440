"""Forge, driven as its worker drives it: the queue's verbs, and the listener for dispatch."""

from queue import SimpleQueue
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
from forge_schema.database.pool import Database
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.lease import End, Grant
from forge_schema.model.states import Reason
from forge_schema.model.worker import Capacity, Machine
from forge_schema.queue.limits import Limits
from forge_schema.queue.queue import LEASE_TTL, Queue
from forge_worker.queue.gateway import SqlGateway
from passing import passed
from workload import LIMIT, SETTLE_S, URGENT, of_owners

if TYPE_CHECKING:
    from forge_worker.queue.hints import Listener

FREE = Capacity(cpus=1000, memory_mb=1 << 24, disk_mb=1 << 28)


class ForgeSide:
    """One worker on one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.database = Database(url).open()
        self.queue = Queue(self.database, actor="user:ann")
        boot_id = uuid4()
        name = f"bench-{boot_id}"
        self.gateway = SqlGateway(self.database, name=name, ttl=LEASE_TTL)
        self.gateway.register(Machine(boot_id, 1000, 1 << 24, 1 << 28))
        self._held: list[Grant] = []
        self._claimed: SimpleQueue[tuple[float, Grant]] = SimpleQueue()
        self._idle = Event()
        self._listener: Listener | None = None

    def close(self) -> None:
        if self._listener is not None:
            self._listener.end()
        with psycopg.connect(self.url, autocommit=True) as connection:
            # It looks whether it is to end when a hint comes.
            connection.execute("NOTIFY forge")
        Event().wait(SETTLE_S)
        self.database.close()

    def limit(self) -> None:
        """Have one of the owners under a limit."""
        Limits(self.database, actor="admin").limit_owner("owner-0", OwnerSettings(max_jobs=LIMIT))

    def feed(self, jobs: int, owners: int = 1) -> None:
        """Have this many more jobs ready, dealt out to owners."""
        for start in range(0, jobs, 5000):
            self.queue.submit(of_owners(min(5000, jobs - start), owners))
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("ANALYZE ready, lane, job, lease, slot")

    def turn(self, count: int) -> int:
        """Finish what is held and claim up to `count` jobs, in one round trip."""
        ends = [End(grant.fence, Reason.SUCCEEDED) for grant in self._held]
        ended, self._held = self.gateway.finish_and_claim(ends, FREE, count)
        assert all(one.accepted for one in ended), "a lease was lost"
        return len(self._held)

    def pass_on(self, jobs: int, count: int) -> int:
        """Pass at least this many jobs, `count` at a time, and return how many."""
        return passed(self.turn, jobs, count)

    def drain(self) -> None:
        """Finish what is held, and take everything out of `ready`."""
        self.turn(0)
        with psycopg.connect(self.url, autocommit=True) as connection:
            # Claiming the rest would take minutes, and nobody asks where those jobs are.
            connection.execute("TRUNCATE ready")

    def dispatch(self, jobs: int) -> list[float]:
        """Return the seconds from submit to the moment when an idle worker holds the job.

        The job is urgent, so that it is the next one however many wait.
        """
        if self._listener is None:
            # Not above: the other side of a comparison may have it in another module.
            from forge_worker.queue.hints import Listener  # noqa: PLC0415

            self._listener = Listener(self.url, work=self._work, asked=lambda _: None)
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
