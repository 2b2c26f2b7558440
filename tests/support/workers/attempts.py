"""Attempts without an agent: a lease from a real queue, and work folders."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

from forge_schema.database.pool import Database, DatabaseUnreachable
from forge_schema.model.job import with_shares
from forge_schema.model.lease import Grant
from forge_schema.model.spec import JobSpec
from forge_schema.model.worker import Capacity, Machine
from forge_schema.storage.file_store import FileStore
from forge_worker.attempt import LiveAttempt
from forge_worker.attempt_folders import Folders
from forge_worker.job_runs.job_state import record_of
from forge_worker.machine.slots import MachineSlot
from forge_worker.queue.gateway import SqlGateway

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from forge_schema.model.attempt_records import MetricLines
    from forge_schema.storage import Progress

PLENTY = Capacity(1000, 1 << 20, 1 << 30)


class CountingStore(FileStore):
    """A store in a folder that records the objects put into it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.given: list[str] = []

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        self.given.append(key)
        return super().put(key, data, if_absent=if_absent)

    def put_part(self, key: str, file: BinaryIO, offset: int, size: int) -> bool:
        copied = super().put_part(key, file, offset, size)
        self.given += [key] * copied
        return copied

    def put_together(self, objects: Mapping[str, bytes]) -> bool:  # noqa: ARG002  each is counted
        return False

    def put_file(
        self, key: str, path: Path, *, if_absent: bool = False, progress: Progress | None = None
    ) -> bool:
        self.given.append(key)
        return super().put_file(key, path, if_absent=if_absent, progress=progress)


class MetricsQueue:
    """Stores lines as the queue does: what has a number that is stored already is a repeat."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.loses_answer = False

    def record(self, _: object, record: MetricLines) -> bool:
        self.lines += [line.values for line in record.lines if line.number >= len(self.lines)]
        if self.loses_answer:
            self.loses_answer = False
            raise DatabaseUnreachable("the answer was lost")
        return True


@dataclass
class Desk:
    """A queue with a passive worker: it claims, and leaves the rest to the test."""

    gateway: SqlGateway
    database: Database
    store: CountingStore
    root: Path
    attempts: list[LiveAttempt] = field(default_factory=list)

    def attempt(self) -> LiveAttempt:
        """Claim a job, submitted now unless one is ready, and make its folders."""
        grants = self.gateway.finish_and_claim([], PLENTY, 1)[1]
        if not grants:
            self.gateway.queue.submit([JobSpec(name="j", owner="ann", command=["true"])])
            self.gateway.new_work()
            grants = self.gateway.finish_and_claim([], PLENTY, 1)[1]
        made = attempt_of(grants[0], self.root / str(grants[0].fence.token))
        self.attempts.append(made)
        return made

    def again(self, attempt: LiveAttempt) -> LiveAttempt:
        """Give the job back and claim it again."""
        self.gateway.queue.release(attempt.fence)
        following = self.attempt()
        assert following.fence.job_id == attempt.fence.job_id
        return following


@contextmanager
def desk(database_url: str, root: Path) -> Iterator[Desk]:
    """Make a desk on a database and a store in `root`."""
    with Database(database_url) as database:
        (root / "store").mkdir(exist_ok=True)
        store = CountingStore(root / "store")
        gateway = SqlGateway(database, name="desk", ttl=timedelta(seconds=60), store=store)
        gateway.register(Machine(uuid4(), 1000, 1 << 20, 1 << 30))
        yield Desk(gateway, database, store, root)


def content(attempt: LiveAttempt) -> dict[str, str]:
    """Return the text of each file in the checkpoint folder, by its path there."""
    folder = attempt.folders.checkpoint
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


def attempt_of(grant: Grant, root: Path) -> LiveAttempt:
    """Return an attempt with its folders made, and its record in them."""
    made = LiveAttempt(grant, Folders(root))
    made.folders.make()
    record_of(made, MachineSlot(1, 100, 100), "process", f"forge-{grant.job_id}").write()
    return made


def some_grant(job_id: int = 7, token: int = 3) -> Grant:
    """Return a grant that no queue knows."""
    spec = JobSpec(name="j", owner="ann", command=["true"])
    return Grant(
        job_id=job_id,
        token=token,
        nonce=uuid4(),
        attempt=1,
        name=spec.name,
        owner=spec.owner,
        spec=with_shares(spec.payload(), {"cpus": 1.0, "memory_mb": 1024}),
        bundle_digest=None,
        timeout_s=None,
        lane_id=1,
        priority=0,
        failures=0,
        losses=0,
        preemptions=0,
    )
