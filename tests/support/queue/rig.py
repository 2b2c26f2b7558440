"""A queue for tests: its own database, a clock that stands still, workers without machines."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.lease import End, Ended, Fence, Grant, Renewal
from forge_schema.model.spec import JobSpec, Resources
from forge_schema.model.states import Reason, State, WorkerStatus
from forge_schema.model.worker import Capacity, Machine
from forge_schema.queue.inputs import Uploads, named
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.limits import Limits
from forge_schema.queue.queue import Queue
from forge_schema.queue.registry import Registry
from forge_schema.read.jobs import Jobs
from forge_schema.sweeper.tick import Tick
from psycopg.rows import dict_row
from support.database.clock import START, Clock
from support.database.databases import AFRESH, Kept, Recorded, holding, quiet
from support.database.emptying import emptied, guard
from support.queue.named_records import NamedRecords
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.database.postgres import Server

CENTURY = timedelta(days=36_500)
PLACES = ("ready", "scheduled", "held", "lease", "outcome")


def spec(**changes: Any) -> JobSpec:  # noqa: ANN401  fields of all types
    """Make a small job; `changes` are fields of JobSpec or of its Resources."""
    needs = {name: changes.pop(name) for name in list(changes) if name in Resources.model_fields}
    resources = Resources(**{"cpus": 1, "memory_mb": 1, "disk_mb": 1, **needs})
    return JobSpec(
        **{"name": "job", "command": ["true"], "owner": "ann", "resources": resources, **changes}
    )


@dataclass
class Worker:
    """A registered worker that runs nothing; it reads its lanes anew with every claim."""

    rig: Rig
    name: str
    machine: Machine
    id: int
    lanes: Lanes
    free: Capacity

    def claim(self, count: int = 1) -> list[Grant]:
        """Claim up to `count` jobs."""
        return self.rig.queue.claim(self.lanes, self.free, count=count)

    def claim_one(self) -> Grant:
        """Claim one job, which must exist."""
        (grant,) = self.claim()
        return grant

    def renew(self, *grants: Grant) -> Renewal:
        """Renew the worker's leases."""
        return self.renew_fences([grant.fence for grant in grants])

    def renew_fences(self, fences: list[Fence]) -> Renewal:
        """Renew the given leases as this worker."""
        return self.rig.queue.renew(self.id, self.machine.boot_id, fences, WorkerStatus.BUSY)


class Rig:
    """Everything that a queue test talks to."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = Clock(url)
        self.database = Recorded(url)
        self.database.open()
        self._kept: list[Kept] = []
        self._free: list[Kept] = []
        self._eye = psycopg.connect(url, autocommit=True, row_factory=dict_row)
        self._begin()
        # Else each test whose sweeper makes them would change the schema.
        self.tick.make_partitions()
        self.database.ran.clear()
        guard(self._eye)

    def _begin(self) -> None:
        self.queue = Queue(self.database, actor="user:ann")
        # However far a test moves the clock, that does not count as an outage.
        self.tick = Tick(Queue(self.database, actor="sweeper"), every=CENTURY)
        self.registry = Registry(self.database, actor="user:root")
        self.admin = Limits(self.database, actor="user:root")
        self.records = NamedRecords(self.database)
        self.jobs = Jobs(self.database)
        self.rows("UPDATE sweeper SET ticked_at = forge_now()")

    def renewed(self) -> bool:
        """Become as good as new, with the same connections, unless a test has gone too far."""
        self.database.forget()
        others = [self.clock.connection.info.backend_pid]
        for database in (self.database, *self._kept):
            idle = quiet(database)
            if idle is None:
                return False
            others += idle
        self._eye.execute(AFRESH)
        self.clock.connection.execute(AFRESH)
        if not emptied(self._eye, others):
            return False
        self.clock.now = START
        self._begin()
        return True

    def close(self) -> None:
        self._eye.close()
        self.database.close()
        for kept in self._kept:
            kept.end()
        self.clock.close()

    def served(self, size: int, statement_s: float) -> Kept:
        """Return connections for a server, as one before it left them."""
        for kept in self._free:
            if kept.kind == (size, statement_s):
                self._free.remove(kept)
                return kept
        made = Kept(self.url, size, statement_s, self._free).open()
        self._kept.append(made)
        return made

    def submit(self, **changes: Any) -> int:  # noqa: ANN401  fields of all types
        """Submit one job, with arguments as for `spec`."""
        return self.submit_many(1, **changes)[0]

    def submit_many(self, count: int, **changes: Any) -> list[int]:  # noqa: ANN401  as above
        """Submit identical jobs; their bundles and images count as uploaded."""
        job = spec(**changes)
        for sha256 in named(job):
            Uploads(self.database).add(job.owner, sha256)
        return self.queue.submit([job] * count)

    def worker(self, name: str = "w", **changes: Any) -> Worker:  # noqa: ANN401  as above
        """Register a worker with room for many jobs; `changes` are fields of Machine."""
        machine = Machine(
            **{
                "boot_id": uuid4(),
                "cpus": 100_000,
                "memory_mb": 1_000_000,
                "disk_mb": 1_000_000,
                **changes,
            }
        )
        worker_id = self.registry.register(name, machine)
        lanes = Lanes(self.database, worker_id, refresh_s=-1)
        room = (machine.cpus, machine.memory_mb, machine.disk_mb, len(machine.gpus))
        return Worker(self, name, machine, worker_id, lanes, Capacity(*room))

    def finish(
        self,
        grant: Grant,
        reason: Reason = Reason.SUCCEEDED,
        **changes: Any,  # noqa: ANN401  as above
    ) -> Ended:
        """End a lease; `changes` are fields of End."""
        return self.queue.finish([End(grant.fence, reason, **changes)])[0]

    def expire(self) -> None:
        """Let every lease expire."""
        self.clock.advance(self.queue.ttl.total_seconds() + 1)

    def state(self, job_id: int) -> State:
        """Return a job's state."""
        return State(self.jobs.job(job_id)["state"])

    def places(self, job_id: int) -> list[str]:
        """Return the tables that contain a job."""
        found = [f"SELECT '{t}' AS place FROM {t} WHERE job_id = %(job_id)s" for t in PLACES]
        rows = self._eye.execute(" UNION ALL ".join(found), {"job_id": job_id})
        return [row["place"] for row in rows]

    def rows(self, query: str, *params: object) -> list[dict[str, Any]]:
        """Query the tables directly."""
        cursor = self._eye.execute(query, params)
        # A `SELECT FROM` has rows without columns: its description is empty, but not None.
        return [] if cursor.description is None else cursor.fetchall()

    def row(self, query: str, *params: object) -> dict[str, Any]:
        """Return the one row of a query."""
        (row,) = self.rows(query, *params)
        return row

    def count(self, table: str) -> int:
        """Count a table's rows."""
        counted: int = self.row(f"SELECT count(*) AS count FROM {table}")["count"]
        return counted

    def actions(self, job_id: int) -> list[str]:
        """Return the actions that the audit trail has for a job."""
        return [event["action"] for event in self.jobs.events(job_id)]

    @contextmanager
    def uncommitted(self) -> Iterator[Queue]:
        """Yield a queue whose verbs are committed together when the block ends."""
        with holding(self.url) as database:
            yield Queue(database, actor="user:bob")

    @contextmanager
    def listening(self) -> Iterator[Callable[[], list[str]]]:
        """Listen as workers do; the yielded callable returns the latest notifications."""
        with psycopg.connect(self.url, autocommit=True) as ear:
            ear.execute("LISTEN forge")
            heard: list[str] = []

            def one() -> list[str]:
                if not heard:
                    heard.extend(self._told(ear))
                return [heard.pop(0)] if heard else []

            yield one

    def _told(self, ear: psycopg.Connection[Any]) -> list[str]:
        # Notifications sent before the mark arrive before it, however busy the machine is.
        self.rows("SELECT pg_notify('forge', 'mark')")
        told: list[str] = []
        for notice in ear.notifies(timeout=120):
            if notice.payload == "mark":
                break
            told.append(notice.payload)
        return told

    def break_connections(self) -> None:
        """Break every connection with an open transaction."""
        self.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'idle in transaction'"
        )

    def wait_until_blocked(self, count: int = 1) -> None:
        """Wait until this many statements are blocked by a lock."""
        eventually(
            lambda: (
                self.row(
                    "SELECT count(*) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND wait_event_type = 'Lock'"
                )["count"]
                == count
            )
        )


class Rigs:
    """The rigs of one test process: what a test returns is lent to the next one if it can be."""

    def __init__(self, server: Server, template: str) -> None:
        self._server = server
        self._template = template
        self._free: list[Rig] = []
        self._stacks: dict[Rig, ExitStack] = {}

    @contextmanager
    def lent(self) -> Iterator[Rig]:
        rig = self._free.pop() if self._free else self._made()
        try:
            yield rig
        finally:
            if self._renewed(rig):
                self._free.append(rig)
            else:
                self._stacks.pop(rig).close()

    def _made(self) -> Rig:
        with ExitStack() as stack:
            rig = Rig(stack.enter_context(self._server.database(self._template)))
            stack.callback(rig.close)
            self._stacks[rig] = stack.pop_all()
        return rig

    def _renewed(self, rig: Rig) -> bool:
        try:
            return rig.renewed()
        except (psycopg.Error, DatabaseUnreachable):
            return False

    def close(self) -> None:
        for stack in self._stacks.values():
            stack.close()


def stale(grant: Grant, **changes: int | UUID) -> Fence:
    """Return a grant's fence with one field wrong."""
    fence = {field.name: getattr(grant.fence, field.name) for field in fields(Fence)}
    return Fence(**{**fence, **changes})
