"""A queue on the real clock, for tests that copy its database: a rig's has more than ours in it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from forge_schema.database.pool import Database
from forge_schema.model.lease import End, Ended, Grant
from forge_schema.model.states import Reason
from forge_schema.model.worker import Capacity, Machine
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.queue import Queue
from forge_schema.queue.registry import Registry
from support.queue.named_records import NamedRecords
from support.queue.rig import spec

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 1_000


class LiveWorker:
    """A registered worker that runs nothing."""

    def __init__(self, live: Live, name: str) -> None:
        machine = Machine(boot_id=uuid4(), cpus=SIZE, memory_mb=SIZE, disk_mb=SIZE)
        self.id = live.registry.register(name, machine)
        self._live = live

    def claim_one(self) -> Grant:
        """Claim one job, which must exist."""
        lanes = Lanes(self._live.database, self.id, refresh_s=-1)
        (grant,) = self._live.queue.claim(lanes, Capacity(SIZE, SIZE, SIZE, 0), count=1)
        return grant


class Live:
    """The verbs of a rig that need no clock."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.queue = Queue(database, actor="user:ann")
        self.registry = Registry(database, actor="user:root")
        self.records = NamedRecords(database)

    def submit(self, **changes: Any) -> int:  # noqa: ANN401  fields of all types
        """Submit one job, with arguments as for `spec`."""
        return self.queue.submit([spec(**changes)])[0]

    def worker(self, name: str) -> LiveWorker:
        """Register a worker with room for many jobs."""
        return LiveWorker(self, name)

    def finish(
        self,
        grant: Grant,
        reason: Reason = Reason.SUCCEEDED,
        **changes: Any,  # noqa: ANN401  as above
    ) -> Ended:
        """End a lease; `changes` are fields of End."""
        return self.queue.finish([End(grant.fence, reason, **changes)])[0]


@contextmanager
def live(url: str) -> Iterator[Live]:
    """Open a queue."""
    with Database(url) as database:
        yield Live(database)
