"""One tick of the sweeper: what time alone must move."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from forge_schema.database import Database
from forge_schema.lease import End, Fence
from forge_schema.queue import Queue
from forge_schema.states import Reason

BATCH = 500
# So many batches of one kind at most in a tick, so that a backlog holds up nothing else.
BATCHES = 40
# Fewer leases than this running out together say nothing about the database.
BRAKE = 10
# Well over the time in which a signed request is taken.
NONCES = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Windows:
    """After how long a worker is offline, and after how long it is removed."""

    offline: timedelta = timedelta(seconds=120)
    reap_ephemeral: timedelta = timedelta(hours=1)
    reap_unconnected: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Swept:
    """How many of each a tick moved."""

    requeued: int
    promoted: int
    overdue: int
    offline: int
    reaped: int


class Sweep:
    """Each step is safe to run twice and at the same time as itself elsewhere."""

    def __init__(self, queue: Queue, *, windows: Windows | None = None) -> None:
        self._queue = queue
        self._database: Database = queue.database
        self._windows = windows or Windows()

    def tick(self) -> Swept:
        """Requeue, promote, enforce deadlines, mark offline, reap, make partitions."""
        swept = Swept(
            requeued=_batches(self.requeue),
            promoted=_batches(self.promote),
            overdue=self.ask_overdue(),
            offline=self.mark_offline(),
            reaped=self.reap(),
        )
        self._database.rows("make_partitions", again=True)
        self._database.rows("forget_nonces", again=True, older=NONCES)
        return swept

    def requeue(self) -> int:
        """End a batch of leases that ran out as `worker_lost`; each is checked once more."""
        rows = self._database.rows(
            "expired", again=True, ttl=self._queue.ttl, brake=BRAKE, count=BATCH
        )
        fences = [Fence(row["job_id"], row["token"], row["nonce"]) for row in rows]
        ends = [End(f, Reason.WORKER_LOST, detail="the lease ran out") for f in fences]
        return len(self._queue.finish(ends, expired_only=True))

    def promote(self) -> int:
        """Make ready a batch of what is scheduled and due."""
        rows = self._database.rows("promote", again=True, count=BATCH, actor=self._queue.actor)
        return len(rows)

    def ask_overdue(self) -> int:
        """Ask for the end of jobs past their time limit."""
        return len(self._database.rows("overdue", again=True, actor=self._queue.actor))

    def mark_offline(self) -> int:
        """Mark silent workers offline."""
        silence = self._windows.offline
        rows = self._database.rows("offline", again=True, silence=silence, actor=self._queue.actor)
        return len(rows)

    def reap(self) -> int:
        """Remove ephemeral workers long gone and workers that never connected."""
        rows = self._database.rows(
            "reap",
            again=True,
            ephemeral_after=self._windows.reap_ephemeral,
            unconnected_after=self._windows.reap_unconnected,
            actor=self._queue.actor,
        )
        return len(rows)


def _batches(step: Callable[[], int]) -> int:
    moved = 0
    for _ in range(BATCHES):
        count = step()
        moved += count
        if count < BATCH:
            break
    return moved
