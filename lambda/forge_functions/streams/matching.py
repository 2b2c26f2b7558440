"""Keep the lanes between claims, and which of them each worker can serve."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from threading import Lock
from time import monotonic
from uuid import UUID

from forge_schema.database.pool import Database
from forge_schema.queue.lanes import LaneBook, Lanes

KEPT = 20_000


@dataclass(slots=True)
class Known:
    """A worker's lanes, and whose turn it is to claim."""

    lanes: Lanes
    turn: Lock = field(default_factory=Lock)


class Matching:
    """Remembers the workers that claimed last. A forgotten one is simply matched again."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lock = Lock()
        self._known: OrderedDict[tuple[int, UUID], Known] = OrderedDict()
        self._hinted_at = -inf
        self._book: LaneBook | None = None

    def __len__(self) -> int:
        return len(self._known)

    def came_back(self) -> None:
        """Make every worker's next claim look for a job that came back ahead of others."""
        with self._lock:
            for known in self._known.values():
                known.lanes.came_back()

    def new_work(self) -> None:
        """Make every worker's next claim look for new lanes too before it finds nothing."""
        self._hinted_at = monotonic()

    @contextmanager
    def lanes(self, database: Database, worker_id: int, boot_id: UUID) -> Iterator[Lanes]:
        """Lend a worker's lanes for one claim. A second claim of the same worker waits."""
        key = worker_id, boot_id
        with self._lock:
            self._book = self._book or LaneBook(database)
            if key not in self._known:
                lanes = Lanes(database, worker_id, book=self._book)
                self._known[key] = Known(lanes)
            self._known.move_to_end(key)
            known = self._known[key]
            if len(self._known) > self._kept:
                self._known.popitem(last=False)
        with known.turn:
            known.lanes.doubt(self._hinted_at)
            yield known.lanes
