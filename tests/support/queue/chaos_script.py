"""A run for the checker: a worker freezes past its lease's end, and another takes its one job."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from uuid import UUID, uuid4

import stamina
from chaos.evidence.witness import install
from forge_schema import zstd
from forge_schema.database.pool import Database
from forge_schema.model.attempt_records import ArtifactRecord, LogChunkRecord
from forge_schema.model.lease import End, Grant
from forge_schema.model.states import Phase, Reason, WorkerStatus
from forge_schema.model.worker import Capacity, Machine
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.queue import Queue
from forge_schema.queue.registry import Registry
from forge_schema.storage import open_store
from forge_schema.storage.keys import AttemptKeys
from support.queue.named_records import NamedRecords
from support.queue.rig import spec

if TYPE_CHECKING:
    from chaos.evidence.history import History
    from forge_schema.storage import Store
    from support.queue.rig import Rig

ROOM = Capacity(8, 8000, 8000, 0)
STEP_S = 10
# Sweepers that were away hold off for this long, so that none ends a lease without cause.
STEPS = 100
# What its program says, and all that it writes.
SAID = b"from 3\nready to stop\n"


@dataclass
class Member:
    """A worker with its own named connection, which acts as an agent would."""

    id: int
    boot_id: UUID
    queue: Queue
    records: NamedRecords
    lanes: Lanes
    store: Store

    def claim(self) -> list[Grant]:
        return self.queue.claim(self.lanes, ROOM)

    def renew(self, grant: Grant) -> None:
        self.queue.renew(self.id, self.boot_id, [grant.fence], WorkerStatus.BUSY)

    def run(self, grant: Grant) -> None:
        self.queue.report(grant.fence, Phase.RUNNING, devices=["GPU-1"])

    def write(self, grant: Grant) -> None:
        """Store a chunk of log and an artifact, and index both."""
        keys, data = AttemptKeys(grant.fence.job_id, grant.attempt, grant.fence.mark), SAID
        digest = hashlib.sha256(data).hexdigest()
        self.store.put(keys.log_chunk(0), zstd.compress(data))
        self.store.put(keys.artifact("mark"), data)
        chunk = LogChunkRecord(0, keys.log_chunk(0), 0, len(data), digest)
        self.records.add_log_chunk(grant.fence, chunk)
        artifact = ArtifactRecord("mark", keys.artifact("mark"), len(data), digest)
        self.records.add_artifacts(grant.fence, [artifact])

    def succeed(self, grant: Grant) -> None:
        self.queue.finish([End(grant.fence, Reason.SUCCEEDED, exit_code=0)])


class Script:
    """The run, identical for all versions of the statements; with intact fences it ends well."""

    def __init__(self, rig: Rig, store_url: str, history: History) -> None:
        self.rig = rig
        self.history = history
        self.store = open_store(store_url)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        install(self.rig.url)
        self._stack.enter_context(stamina.set_testing(True, attempts=4, cap=True))
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def run(self) -> None:
        """Freeze a worker with the job, let another run it, wake the first, and continue both."""
        frozen, other = self._member("frozen"), self._member("other")
        self._submit("first")
        job_id = self._submit("first")
        (stale,) = frozen.claim()
        frozen.run(stale)
        self._let_run_out()
        (grant,) = other.claim()
        other.run(grant)
        self._wake(frozen, stale)
        self._renew_while_a_sweeper_looks(other, grant)
        other.write(grant)
        other.succeed(grant)
        # Also run jobs that a mutation made ready again, or added.
        while left := other.claim():
            other.write(left[0])
            other.succeed(left[0])
        self.history.note("seen", job_id=job_id, state=self.rig.state(job_id).value)

    def run_many(self, count: int) -> list[int]:
        """Let one worker run this many jobs, each with its own key, beside an idle worker."""
        self._member("idle")
        worker = self._member("busy")
        for number in range(count):
            self._submit(f"k{number}")
            (grant,) = worker.claim()
            worker.write(grant)
            worker.succeed(grant)
            self.rig.clock.advance(STEP_S)
        jobs = [row["job_id"] for row in self.rig.rows("SELECT job_id FROM outcome ORDER BY 1")]
        for job_id in jobs:
            self.history.note("seen", job_id=job_id, state=self.rig.state(job_id).value)
        return jobs

    def reasons(self) -> list[str]:
        """Return the reason of each attempt, in order."""
        rows = self.rig.rows("SELECT reason FROM attempt ORDER BY token")
        return [row["reason"] for row in rows]

    def _member(self, name: str) -> Member:
        machine = Machine(uuid4(), 8, 8000, 8000)
        url = f"{self.rig.url}&application_name={name}"
        database = self._stack.enter_context(Database(url))
        worker_id = Registry(database, actor=f"worker:{name}").register(name, machine)
        return Member(
            worker_id,
            machine.boot_id,
            Queue(database, actor=f"worker:{worker_id}"),
            NamedRecords(database),
            Lanes(database, worker_id, refresh_s=-1),
            self.store,
        )

    def _submit(self, key: str) -> int:
        job_id = self.rig.queue.submit([spec(idempotency_key=key)])[0]
        self.history.note("submitted", job_id=job_id, key=key, writes=["mark"])
        return job_id

    def _wake(self, frozen: Member, stale: Grant) -> None:
        """Let a worker continue that does not know yet that it lost its lease."""
        frozen.renew(stale)
        frozen.write(stale)
        frozen.succeed(stale)

    def _tick(self) -> None:
        self.rig.clock.advance(STEP_S)
        self.rig.tick.run()

    def _let_run_out(self) -> None:
        for _ in range(STEPS):
            self._tick()
            if not self.rig.count("lease"):
                return

    def _renew_while_a_sweeper_looks(self, holder: Member, grant: Grant) -> None:
        """Let the lease expire, and have its holder renew between a sweeper's two looks."""
        for row in self.rig.rows(
            "SELECT expires_at FROM lease WHERE token = %s", grant.fence.token
        ):
            while row["expires_at"] >= self.rig.clock.now:
                self.rig.clock.advance(STEP_S)
                if row["expires_at"] < self.rig.clock.now:
                    self.rig.database.meanwhile["expired"] = lambda: holder.renew(grant)
                self.rig.tick.run()
