"""The workers of this process that sleep until there are jobs for them.

A worker that found no job is recorded in the table `idle`, and whatever makes jobs ready takes as
many rows from it as there are jobs. The notification names the workers; others ignore it. A job may
be made ready while a worker is being recorded: neither sees the other. So the notification carries
the snapshot in which its workers were chosen. A worker whose record this snapshot does not show
looks again, and so does one that is looking at that moment.

A hint may be lost at any time, so workers also look by themselves now and then.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from threading import Lock
from time import monotonic
from typing import Self
from uuid import UUID

from forge_schema.database.pool import Database
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import array
from forge_schema.model.worker import Capacity

ASKED = "asked"
BACK = "back"
SHELL = "shell"

# Records are written again after this time: another server may have changed them.
TRUSTED_S = 60.0
COLUMNS = ("gpu_model", "cpus", "memory_mb", "disk_mb", "gpus", "vram_mb")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The transactions that a statement saw; `running` had not ended yet."""

    xmin: int
    xmax: int
    running: frozenset[int] = frozenset()

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the text of a `pg_snapshot`."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, filter(None, running.split(",")))))

    def shows(self, xid: int) -> bool:
        """Tell whether what a transaction wrote was visible."""
        return xid < self.xmin or (xid < self.xmax and xid not in self.running)


@dataclass(frozen=True, slots=True)
class Hint:
    """What may have happened: `asked` of a worker, or jobs became `ready` or came `back`.

    `workers` are those it names. Without a snapshot, a hint of jobs is for every worker. A `shell`
    has an id. Anybody who may connect to the database can send hints, so none is trusted.
    """

    kind: str
    workers: frozenset[int] = frozenset()
    snapshot: Snapshot | None = None
    shell: str = ""

    @classmethod
    def read(cls, payload: str) -> Self:
        """Read a notification.

        One that cannot be read, such as that of a later version, is for every worker.
        """
        kind, _, rest = payload.partition(":")
        workers, _, snapshot = rest.partition(":")
        try:
            named = frozenset(map(int, filter(None, workers.split(","))))
            if kind == SHELL:
                return cls(kind, named, shell=snapshot)
            return cls(kind, named, Snapshot.read(snapshot) if snapshot else None)
        except ValueError:
            return cls(kind)


# For every worker: nothing was listening for a while, so any hint may have been missed.
ANY = Hint("ready")


@dataclass(slots=True, eq=False)
class Look:
    """A worker's last look with some resources free; `xid` recorded that it found nothing.

    It is `recorded` if the table may have a row for it, of this look or of an earlier one; `nonce`
    is the name there of the worker's next claim.
    """

    room: dict[str, object]
    recorded: bool = False
    xid: int | None = None
    nonce: UUID | None = None
    at: float = field(default_factory=monotonic)

    def ignores(self, hint: Hint) -> bool:
        return bool(self.xid and hint.snapshot and hint.snapshot.shows(self.xid))


class Sleepers:
    """Records which workers sleep, unless hints do not reach this process (not `hears`)."""

    def __init__(self, *, hears: bool = True) -> None:
        self._hears = hears
        self._lock = Lock()
        # By worker and by model of the free GPUs: a worker looks once for each model.
        self._looks: dict[int, dict[str, Look]] = {}

    def looks(
        self,
        worker_id: int,
        free: Capacity,
        *,
        count: int = 1,
        warm: Sequence[int] = (),
        recorded: bool = False,
    ) -> None:
        """Note that a worker is about to look for jobs. Until it has, every hint wakes it.

        It looks for up to `count` jobs, and has the parts `warm` of jobs. It is known to be
        `recorded`, maybe by another process.
        """
        if not self._hears:
            return
        room, now = {**_room(free), "jobs": count, "warm": array(warm)}, monotonic()
        with self._lock:
            looks = self._looks.setdefault(worker_id, {})
            last = looks.get(free.gpu_model)
            if last is None or not last.xid or last.room != room or now > last.at + TRUSTED_S:
                before = recorded or (last is not None and last.recorded)
                looks[free.gpu_model] = Look(room, recorded=before)

    def looked(
        self,
        database: Database,
        worker_id: int,
        free: Capacity,
        *,
        has_jobs: bool,
        nonce: UUID | None = None,
    ) -> bool:
        """Record that a worker that found nothing sleeps, and that one that found jobs does not.

        A worker that found jobs looks again if it has room for more.

        Args:
            database: an open database.
            worker_id: the worker.
            free: what it had free.
            has_jobs: whether it found jobs.
            nonce: the name of its next claim, if a gang may have it until then.

        Returns:
            Whether somebody else took the record of a worker that found jobs.
        """
        # It is a hint: the look itself succeeded.
        with suppress(ForgeError):
            if has_jobs:
                return self.rise(database, worker_id)
            self._found_nothing(database, worker_id, free, nonce)
        return False

    def rise(self, database: Database, worker_id: int) -> bool:
        """Have a worker's record removed; return whether somebody else took it."""
        with self._lock:
            looks = self._looks.pop(worker_id, {})
        # If there are none, a hint has named the worker meanwhile.
        if not self._hears or (looks and not any(look.recorded for look in looks.values())):
            return False
        return not database.rows("rise", again=True, worker_id=worker_id)

    def woken(self, hint: Hint, workers: Collection[int]) -> set[int]:
        """Return which of these workers a hint wakes."""
        if hint.snapshot is None:
            self.forget()
            return set(workers)
        with self._lock:
            woken = {
                worker for worker in workers if worker in hint.workers or self._misses(worker, hint)
            }
            for worker in hint.workers:
                self._looks.pop(worker, None)
        return woken

    def forget(self) -> None:
        """Trust no record any more: hints that took them may have been missed.

        Those that are still there must go when their worker finds a job: a gang would have it too.
        """
        with self._lock:
            for looks in self._looks.values():
                for look in looks.values():
                    look.xid = None

    def _misses(self, worker_id: int, hint: Hint) -> bool:
        looks = self._looks.get(worker_id, {})
        return not all(look.ignores(hint) for look in looks.values())

    def _found_nothing(
        self, database: Database, worker_id: int, free: Capacity, nonce: UUID | None
    ) -> None:
        with self._lock:
            look = self._looks.get(worker_id, {}).get(free.gpu_model)
        # Without one, a hint has woken it meanwhile.
        if look is None or (look.xid and look.nonce == nonce):
            return
        look.recorded, look.nonce = True, nonce
        row = database.row("sleep", again=True, worker_id=worker_id, nonce=nonce, **look.room)
        # If a hint named the worker meanwhile, this look has been dropped.
        look.xid = row["xid"] if row else None
        if row and row["gangs"]:
            database.rows("form", again=True)


def _room(free: Capacity) -> dict[str, object]:
    room = asdict(free)
    return {name: room[name] for name in COLUMNS}
