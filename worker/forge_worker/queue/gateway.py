"""The worker's gateway to the queue: the protocol, and its implementation over SQL."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import NamedTuple, Protocol
from uuid import UUID, uuid4

from forge_schema.database.pool import Database, Row
from forge_schema.model.attempt_records import AttemptRecord
from forge_schema.model.lease import End, Ended, Fence, Gathering, Grant, Renewal
from forge_schema.model.states import Phase, Standing, WorkerStatus
from forge_schema.model.stored import InputCheckpoint, InputFile
from forge_schema.model.worker import Capacity, Machine
from forge_schema.protocol.answers import Registered
from forge_schema.queue.attempt_records import Records
from forge_schema.queue.claim import next_job, upcoming
from forge_schema.queue.inputs import InputFiles
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.queue import Queue
from forge_schema.queue.registry import Registry
from forge_schema.queue.thinning import GoOn, Thinning
from forge_schema.storage import Store
from forge_schema.wake import Hint, Sleepers
from pydantic import JsonValue


class Ask(NamedTuple):
    """A claim's nonce, and whether a claim of this name was sent before.

    Of one that was `repeated` there was no answer. One that was `offered` found nothing, and the
    worker may be leased for a gang since.
    """

    nonce: UUID | None = None
    repeated: bool = False
    offered: bool = False


class Unanswered:
    """Names each claim, and repeats the name of one that failed: it may have been granted jobs.

    Those are handed out again then. So is what a gang was granted under the name of a claim that
    found nothing, if that is kept (`offers`). A worker claims one at a time.
    """

    def __init__(self) -> None:
        self._nonce: UUID | None = None
        self._answered = False
        self._offers = False

    @property
    def pending(self) -> bool:
        """Whether the worker may have been granted jobs that nobody knows of."""
        return self._nonce is not None

    def claim(self, count: int) -> AbstractContextManager[Ask]:
        """Name a claim of `count` jobs until its answer is there; a claim of none needs no name."""
        return self if count > 0 else nullcontext(Ask())

    def offers(self) -> None:
        """Keep the name of the claim under way, whose answer is that there is nothing."""
        self._offers = True

    def __enter__(self) -> Ask:
        before = self._nonce is not None
        ask = Ask(
            self._nonce or uuid4(),
            repeated=before and not self._answered,
            offered=before and self._answered,
        )
        self._nonce, self._answered, self._offers = ask.nonce, False, False
        return ask

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self._answered = True
            if not self._offers:
                self._nonce = None


class Gateway(Protocol):
    """The verbs of the lease protocol, as one worker speaks them."""

    def register(self, machine: Machine) -> Registered:
        """Register this boot of the worker; if an admin declared it ephemeral, it stays so.

        Raises:
            NameInUse: another live process is this worker.
        """

    def finish_and_claim(
        self, ends: Sequence[End], free: Capacity, count: int
    ) -> tuple[list[Ended], list[Grant]]:
        """End leases for any reason and claim what fits, in one round trip."""

    def next_job(self, past: Sequence[int] = ()) -> Grant | None:
        """Return the job that the worker would likely be granted next, without a lease.

        Jobs in `past` are passed over.
        """

    def finish(self, ends: Sequence[End]) -> list[Ended]:
        """End leases for any reason."""

    def granted_before(self) -> AbstractContextManager[list[Grant]]:
        """Yield what the worker was granted without knowing it; claim nothing.

        That is by a claim whose answer was lost, or for a gang. If the block fails, the next call
        yields it again.
        """

    def renew(
        self,
        leases: Sequence[Fence],
        status: WorkerStatus,
        condition: Mapping[str, object] | None = None,
    ) -> Renewal:
        """Renew leases, report the machine's condition, and return the queue's requests."""

    def report(
        self,
        fence: Fence,
        phase: Phase,
        devices: Sequence[str] | None = None,
        *,
        adopted: bool = False,
    ) -> Standing:
        """Record what the worker is doing with a job, and whether this boot of it adopted it."""

    def gather(self, fence: Fence, step: int, member: Mapping[str, JsonValue]) -> Gathering:
        """Record how far a member of a run has come; return its status and all members by rank."""

    def record(self, fence: Fence, record: AttemptRecord) -> bool:
        """Store a record of an attempt; False if the lease is lost. Idempotent."""

    def newest_checkpoints(self, fence: Fence) -> Row | None:
        """Return the newest checkpoints of a run's rank 0 and of this rank; see `Records`.

        None if the lease is lost, or the server knows only checkpoints of rank 0.
        """

    def latest_checkpoint(self, job_id: int) -> Row | None: ...
    def restorable(self, job_id: int) -> list[Row]:
        """Return the checkpoints that a job can be restored from, best first, with their jobs.

        Raises:
            CheckpointUnknown: the checkpoint that it should start from no longer exists.
        """

    def input_artifacts(
        self, fence: Fence, source_id: int, path: str, after: str
    ) -> list[InputFile]:
        """Return a page of another job's artifacts that are an input; see `InputFiles`."""

    def input_checkpoint(
        self, fence: Fence, source_id: int, attempt: int | None, number: int | None
    ) -> InputCheckpoint | None:
        """Return another job's checkpoint that is an input; see `InputFiles`."""

    def thin_checkpoints(
        self, fence: Fence, keep: int, *, everywhere: bool, go_on: GoOn = lambda: True
    ) -> int:
        """Thin out a job's checkpoints and return the number of removed objects; see `Thinning`."""

    def new_work(self) -> None:
        """Note that there may be work of a kind not seen before."""

    def prefer(self, warm: Sequence[int]) -> None:
        """Note the parts of jobs that this machine has; later claims prefer jobs that need them."""

    def is_awaited(self) -> bool:
        """Tell whether a job could be claimed now, or a gang waits for this worker."""

    def disconnect(self, why: str = "") -> None:
        """Tell the queue that this boot of the worker is leaving cleanly, and why if by itself."""


class SqlGateway:
    """The direct transport, for a trusted network.

    Renewals use their own database connection if given, so that they never wait. Without a store,
    checkpoints are not thinned out. If it `hears` hints, `wakes` must be asked about each of them.
    """

    def __init__(
        self,
        database: Database,
        *,
        name: str,
        ttl: timedelta,
        renewals: Database | None = None,
        store: Store | None = None,
        hears: bool = False,
    ) -> None:
        self._name, actor = name, f"worker:{name}"
        self.queue = Queue(database, actor=actor, ttl=ttl)
        self._renewals = Queue(renewals or database, actor=actor, ttl=ttl)
        self._database = database
        self._registry = Registry(database, actor=actor, alive=ttl)
        records = Records(database)
        self.record = records.record
        self.newest_checkpoints = records.newest_checkpoints
        self.latest_checkpoint = records.latest_checkpoint
        self.restorable = records.restorable
        inputs = InputFiles(database, store)
        self.input_artifacts = inputs.artifacts
        self.input_checkpoint = inputs.checkpoint
        self._thinning = None if store is None else Thinning(database, store)
        self.worker_id = 0
        self._boot_id = UUID(int=0)
        self._lanes = Lanes(database, 0)
        self._unanswered = Unanswered()
        self._sleepers = Sleepers(hears=hears)
        self._in_gangs = False
        self._warm: Sequence[int] = ()

    def register(self, machine: Machine) -> Registered:
        self.worker_id = self._registry.register(self._name, machine)
        self._boot_id = machine.boot_id
        self._lanes = Lanes(self._database, self.worker_id)
        self._in_gangs = machine.address is not None
        ttl_s = self.queue.ttl.total_seconds()
        return Registered(
            worker_id=self.worker_id,
            name=self._name,
            kind=machine.kind,
            heartbeat_s=ttl_s / 2,
            lease_ttl_s=ttl_s,
            queue_id=self._registry.queue_id(),
        )

    def finish_and_claim(
        self, ends: Sequence[End], free: Capacity, count: int
    ) -> tuple[list[Ended], list[Grant]]:
        warm = self._warm
        with self._unanswered.claim(count) as ask:
            if count:
                self._sleepers.looks(self.worker_id, free, count=count, warm=warm)
            ended, grants = self.queue.finish_and_claim(
                ends, self._lanes, free, count=count, warm=warm, **ask._asdict()
            )
            if not count:
                return ended, grants
            return ended, self._looked(free, ask, grants, again=bool(ends))

    def _looked(self, free: Capacity, ask: Ask, grants: list[Grant], *, again: bool) -> list[Grant]:
        """Record whether the worker sleeps, unless it looks `again` soon, as after a job's end.

        Return what it was granted, by now.
        """
        offers = self._in_gangs and not grants
        if offers:
            self._unanswered.offers()
        if again and not grants:
            return grants
        taken = self._sleepers.looked(
            self._database,
            self.worker_id,
            free,
            has_jobs=bool(grants),
            nonce=ask.nonce if offers and self._lanes.offers else None,
        )
        if taken and ask.offered and ask.nonce is not None:
            return self.queue.with_gangs(self._lanes, ask.nonce, grants)
        return grants

    @contextmanager
    def granted_before(self) -> Iterator[list[Grant]]:
        if not self._unanswered.pending:
            yield []
            return
        with self._unanswered as ask:
            # No gang is given this worker from here on.
            self._sleepers.rise(self._database, self.worker_id)
            yield self.queue.finish_and_claim(
                [], self._lanes, Capacity(0, 0, 0), count=0, **ask._asdict()
            )[1]

    def next_job(self, past: Sequence[int] = ()) -> Grant | None:
        return next_job(self._database, self._lanes, past)

    def finish(self, ends: Sequence[End]) -> list[Ended]:
        ended = self.queue.finish(ends)
        # A job that is over leaves nothing to claim below the watermarks.
        if not all(end.over for end in ended):
            self.came_back()
        return ended

    def came_back(self) -> None:
        """Note that a job was requeued, which is older than jobs claimed since."""
        self._lanes.came_back()

    def renew(
        self,
        leases: Sequence[Fence],
        status: WorkerStatus,
        condition: Mapping[str, object] | None = None,
    ) -> Renewal:
        return self._renewals.renew(self.worker_id, self._boot_id, leases, status, condition)

    def report(
        self,
        fence: Fence,
        phase: Phase,
        devices: Sequence[str] | None = None,
        *,
        adopted: bool = False,
    ) -> Standing:
        boot = self._boot_id if adopted else None
        return self.queue.report(fence, phase, devices=devices, replaced_by=boot)

    def gather(self, fence: Fence, step: int, member: Mapping[str, JsonValue]) -> Gathering:
        return self.queue.gather(fence, step, member)

    def thin_checkpoints(
        self, fence: Fence, keep: int, *, everywhere: bool, go_on: GoOn = lambda: True
    ) -> int:
        if self._thinning is None:
            return 0
        return self._thinning.thin(fence, keep, everywhere=everywhere, go_on=go_on)

    def new_work(self) -> None:
        # Known lanes are searched first: a hint is usually about one of them.
        self._lanes.doubt()

    def prefer(self, warm: Sequence[int]) -> None:
        self._warm = warm

    def wakes(self, hint: Hint) -> bool:
        """Tell whether a hint of jobs wakes this worker."""
        return bool(self._sleepers.woken(hint, [self.worker_id]))

    def is_awaited(self) -> bool:
        return any(upcoming(self._database, self._lanes))

    def disconnect(self, why: str = "") -> None:
        self._registry.disconnect(self.worker_id, self._boot_id, why)
