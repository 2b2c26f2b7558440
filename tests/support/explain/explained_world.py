"""Random fleets and queues, and the jobs that each worker's real claim then takes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from forge_schema.database.pool import Connection
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.states import Command, Phase, WorkerKind
from forge_schema.model.worker import Capacity, Machine
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.limits import Limits
from forge_schema.queue.queue import Queue
from forge_schema.queue.registry import Registry
from forge_worker.agent.claim_loop import needs
from forge_worker.devices import GpuDevice
from forge_worker.machine.locks import Locks
from forge_worker.machine.slots import GpuPool, Slots
from hypothesis import strategies as st
from psycopg.rows import dict_row
from support.database.databases import Pinned
from support.database.session import SESSION
from support.queue.rig import spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_schema.model.spec import JobSpec

KINDS = [("NVIDIA A100-SXM4-80GB", 80), ("NVIDIA A100-SXM4-40GB", 40), ("NVIDIA T4", 16)]
NUMBERS = count(1)
HUGE = 1_000_000.0
SHORT_S = 1000
TURN = """
    INSERT INTO forming (job_id, pool, lane_id, nice, since, deadline, expected_at, rests_until)
    VALUES (
        %(job_id)s, 'cpu', %(lane_id)s, %(nice)s, forge_now(), forge_now() + '1 day',
        forge_now() + make_interval(secs => %(short_s)s), forge_now() + '2 days'
    )
"""
DRAFT = """
    INSERT INTO draft (worker_id, job_id, lane_id, nice, until)
    SELECT worker.id, %(job_id)s, lane.id, %(nice)s, forge_now() + '1 day'
    FROM worker CROSS JOIN lane JOIN shape ON shape.id = lane.shape_id
    WHERE worker.id = %(worker_id)s AND lane.id = %(lane_id)s AND forge_serves(shape, worker)
    RETURNING worker_id
"""

JOBS = st.fixed_dictionaries(
    {
        "owner": st.sampled_from(["ann", "bob"]),
        "queue": st.sampled_from(["default", "night"]),
        "priority": st.integers(-1, 1),
        "cpus": st.sampled_from([None, 0.5, 1, 2, 3]),
        "memory_mb": st.sampled_from([None, 1000, 2000, 3000]),
        "gpus": st.sampled_from([0, 0, 1, 1, 2, 4]),
        "gpu_model": st.sampled_from(["*", "*", "a100*", "T4"]),
        "vram_mb": st.sampled_from([0, 0, 20, 50]),
        "accelerator": st.sampled_from(["any", "any", "cuda", "cpu"]),
        "labels": st.sampled_from([{}, {}, {"zone": "e*"}, {"zone": "us"}]),
        "target": st.sampled_from(["auto", "auto", "auto", "worker", "local"]),
        "delay_s": st.sampled_from([0, 0, 0, 0, 60]),
        "timeout_s": st.sampled_from([None, SHORT_S // 2, 2 * SHORT_S]),
    }
)
# A gang that a worker keeps room for, if it could be a part, and whether short jobs may pass.
DRAFTS = st.fixed_dictionaries(
    {
        "priority": st.integers(-1, 1),
        "cpus": st.sampled_from([0.5, 1, 2, 3]),
        "gpus": st.sampled_from([0, 0, 1, 2]),
        "passes": st.booleans(),
    }
)
WORKERS = st.fixed_dictionaries(
    {
        "cpus": st.integers(1, 6),
        "memory_mb": st.integers(1, 6).map(lambda n: n * 1000),
        "gpus": st.lists(st.sampled_from(KINDS), max_size=4),
        "labels": st.sampled_from([{}, {"zone": "eu"}, {"zone": "us"}]),
        "local": st.booleans(),
        "kind": st.sampled_from([WorkerKind.PERSISTENT] * 3 + [WorkerKind.EPHEMERAL]),
        "takes": st.integers(0, 2),
        "draft": st.one_of(st.none(), DRAFTS),
        "tells": st.booleans(),
        "state": st.sampled_from(
            ["here"] * 5 + ["drain", "stop", "offline", "constrained", "draining"]
        ),
    }
)
LIMIT = st.sampled_from([None, None, None, 0, 1, 2, 4])
LIMITS = st.fixed_dictionaries({"max_jobs": LIMIT, "max_gpus": LIMIT})
WORLDS = st.fixed_dictionaries(
    {
        "workers": st.lists(WORKERS, min_size=1, max_size=3),
        "before": st.lists(JOBS, max_size=3),
        "jobs": st.lists(JOBS, min_size=1, max_size=6),
        "queues": st.dictionaries(st.sampled_from(["default", "night"]), LIMITS, max_size=1),
        "owners": st.dictionaries(st.sampled_from(["ann", "bob"]), LIMITS, max_size=1),
        "weight": st.sampled_from([1.0, 2.0]),
        "paused": st.sampled_from([None, None, None, "night", "default"]),
        "patience_s": st.sampled_from([0.0, HUGE]),
    }
)


@dataclass
class Member:
    """A worker with its real slots: free resources are counted as the agent counts them."""

    id: int
    slots: Slots
    described: dict[str, Any]
    held: list[int] = field(default_factory=list)
    drafted: bool = False

    @property
    def claims(self) -> bool:
        """Whether its agent would request jobs; the queue itself refuses leaving workers."""
        leaves = self.described["kind"] is WorkerKind.EPHEMERAL and bool(self.held)
        return self.described["state"] not in {"offline", "constrained", "draining"} and not leaves

    def frees(self) -> Iterator[Capacity]:
        """Yield the free resources, for each kind of free GPU in turn."""
        for choice in self.slots.choices():
            with self.slots.offer(choice) as (free, _):
                yield free


class ExplainedWorld:
    """One example, in a transaction that is rolled back."""

    def __init__(
        self, connection: Connection, url: str, drawn: dict[str, Any], locks: Path
    ) -> None:
        self.connection = connection
        self.database = Pinned(url, connection)
        self.queue = Queue(self.database, actor="user:ann")
        self.patience_s: float = drawn["patience_s"]
        admin = Limits(self.database, actor="user:root")
        self.members = [self._member(one, locks) for one in drawn["workers"]]
        self.queue.submit([_spec(job) for job in drawn["before"]])
        for member in self.members:
            self._fill(member)
        self.jobs = self.queue.submit([_spec(job) for job in drawn["jobs"]])
        for name, limits in drawn["queues"].items():
            admin.set_queue(name, limits)
        for owner, limits in drawn["owners"].items():
            admin.limit_owner(owner, OwnerSettings(**limits, weight=drawn["weight"]))
        if drawn["paused"]:
            admin.set_queue(drawn["paused"], {"paused": True})
        for member in self.members:
            self._settle(member)
            if draft := member.described["draft"]:
                member.drafted = self._draft(member, **draft)

    def _member(self, described: dict[str, Any], locks: Path) -> Member:
        gpus = [GpuDevice(f"GPU-{next(NUMBERS)}", *kind) for kind in described["gpus"]]
        machine = Machine(
            boot_id=uuid4(),
            disk_mb=100,
            accelerator="cuda" if gpus else "cpu",
            address="10.0.0.1",
            gpus=list(gpus),
            **{name: described[name] for name in ("cpus", "memory_mb", "labels", "local", "kind")},
        )
        whole = Capacity(machine.cpus, machine.memory_mb, machine.disk_mb)
        slots = Slots(whole, GpuPool(gpus, locks=Locks(locks)), max_jobs=100)
        registry = Registry(self.database, actor="user:root")
        worker_id = registry.register(f"w{next(NUMBERS)}", machine)
        return Member(worker_id, slots, described)

    def _fill(self, member: Member) -> None:
        """Have a worker claim as its agent does; return the GPUs that it gave, as far as known."""
        most = member.described["takes"]
        for choice in member.slots.choices():
            with member.slots.offer(choice) as (free, _):
                if len(member.held) >= most:
                    return
                for grant in self.claim(member, free):
                    slot = member.slots.lend(grant.fence.token, needs(grant))
                    member.held.append(grant.fence.token)
                    # If it gave one of two kinds, nobody else can tell which.
                    if member.described["tells"] or len(set(member.described["gpus"])) > 1:
                        self.queue.report(grant.fence, Phase.RUNNING, devices=slot.gpu_uuids)

    def _settle(self, member: Member) -> None:
        state = member.described["state"]
        if state in {"drain", "stop"}:
            Registry(self.database, actor="user:root").command(member.id, Command(state))
        elif state != "here":
            self.connection.execute(
                "UPDATE worker SET status = %s::worker_status WHERE id = %s", [state, member.id]
            )

    def _draft(self, member: Member, *, priority: int, passes: bool, **needs: float) -> bool:
        gang = {
            "worker_id": member.id,
            "job_id": HUGE + member.id,
            "lane_id": self.queue._submission.lane(spec(nodes=2, **needs)),
            "nice": -priority,
            "short_s": SHORT_S if passes else None,
        }
        self.connection.execute(TURN, gang)
        return self.connection.execute(DRAFT, gang).fetchone() is not None

    def claim(self, member: Member, free: Capacity) -> list[Any]:
        """Claim one job for a worker without prior knowledge."""
        lanes = Lanes(self.database, member.id, refresh_s=-1, patience_s=self.patience_s)
        return self.queue.claim(lanes, free)

    def taken(self, member: Member, *, of: int | None = None) -> set[int]:
        """Return the jobs that a worker's claims take, with all room free, or just `of`."""
        if not member.claims:
            return set()
        found = set()
        for free in member.frees():
            with self.connection.transaction(force_rollback=True):
                if of is not None:
                    self.connection.execute("DELETE FROM ready WHERE job_id <> %s", [of])
                found |= {grant.fence.job_id for grant in self.claim(member, free)}
        return found

    def waiting(self) -> list[int]:
        """Return the jobs that no worker holds."""
        rows = self.connection.execute(
            "SELECT job_id FROM ready UNION ALL SELECT job_id FROM scheduled"
        )
        return [row["job_id"] for row in rows]

    def close(self) -> None:
        for member in self.members:
            for token in member.held:
                member.slots.take_back(token)


class Worlds:
    """Makes worlds on one connection; everything they write is rolled back."""

    def __init__(self, url: str, locks: Path) -> None:
        self._url = url
        self._locks = locks
        self._connection = Connection.connect(url, row_factory=dict_row)
        self._connection.execute(SESSION)
        self._connection.execute("SET idle_in_transaction_session_timeout = 0")
        self._connection.commit()

    @contextmanager
    def world(self, drawn: dict[str, Any]) -> Iterator[ExplainedWorld]:
        with self._connection.transaction(force_rollback=True):
            world = ExplainedWorld(self._connection, self._url, drawn, self._locks)
            try:
                yield world
            finally:
                world.close()

    @contextmanager
    def undone(self) -> Iterator[Connection]:
        """Yield the connection, and roll back everything done on it."""
        with self._connection.transaction(force_rollback=True):
            yield self._connection

    def close(self) -> None:
        self._connection.close()


def _spec(described: dict[str, Any]) -> JobSpec:
    return spec(**described)
