"""The claim loop: claims jobs for the machine's free resources.

A job that ends also claims: its end is sent together with the claim for the next job, which another
thread starts at once. That saves a round trip for each job. See `jobs`. Ends that arrive while a
round trip is under way share the next one: sixty small jobs cost little more than one.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Lock

import structlog
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Ended, Fence, Grant
from forge_schema.model.states import Reason
from forge_schema.model.worker import Capacity

from forge_worker.agent.registration import WorkerIdentity
from forge_worker.clock import seconds
from forge_worker.loop import Loop
from forge_worker.machine.slots import Choice, MachineSlot, Slots
from forge_worker.queue.gateway import Gateway

BATCH = 8
# The most ends, and the most jobs, of one round trip.
TOGETHER = 100
UNANSWERED = "the worker drained before it had the answer to its claim"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Granted:
    """A granted job and its slot; the lease counts from when the claim was sent."""

    grant: Grant
    slot: MachineSlot
    sent_s: float


class EndNotTaken(DatabaseUnreachable):
    """The queue answers, but failed to process this end; it is reported again later."""


class StillWanted(ForgeError):
    """A worker that was about to leave has work."""


def _held() -> Lock:
    lock = Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class EndReport:
    """An end on its way to the queue, and what came of it; `frees` as of `exchange`."""

    end: End
    frees: bool
    ended: Ended | None = None
    granted: list[Granted] = field(default_factory=list)
    error: Exception | None = None
    # Held until it is answered, or until its thread is to send the next round trip.
    told: Lock = field(default_factory=_held)

    @property
    def answered(self) -> bool:
        return self.ended is not None or self.error is not None


class Claims:
    """Claims jobs that fit and assigns their slots, for the claim loop and for jobs that end.

    `room` returns how many jobs the machine can take now; None means any number. `woken` is set
    when there may be room again.
    """

    def __init__(
        self,
        gateway: Gateway,
        slots: Slots,
        identity: WorkerIdentity,
        *,
        room: Callable[[], int | None] = lambda: None,
        woken: Event | None = None,
    ) -> None:
        self.woken = woken or Event()
        self.identity = identity
        self._gateway = gateway
        self._slots = slots
        self._room = room
        # Counting room, claiming and assigning slots must be atomic.
        self._lock = Lock()
        self._reports: deque[EndReport] = deque()
        self._sending = False
        self._joining = Lock()
        self.closed = False

    @property
    def jobs(self) -> int:
        """How many jobs hold a slot."""
        return self._slots.jobs

    def shut(self) -> None:
        """Stop claiming; a claim may still be under way."""
        self.closed = True

    def close(self) -> None:
        """Stop claiming; wait for a claim under way, and for the start of its jobs."""
        self.shut()
        with self._lock:
            pass

    def retire(self) -> bool:
        """Stop claiming; return whether nothing is under way or waits for this worker.

        What a claim or a gang was granted meanwhile is handed out again by the next claim.
        """
        with self._lock:
            self.shut()
            if self.jobs:
                return False
            try:
                with self._gateway.granted_before() as grants:
                    if grants or self._gateway.is_awaited():
                        raise StillWanted("there is work for this worker")
            except ForgeError as error:
                log.info("worker_stays", why=error.message)
                return False
            return True

    def give_back_unanswered(self) -> bool:
        """Give back what a claim was granted whose answer was lost; False if that failed.

        Otherwise these jobs would wait for their leases to expire.
        """
        try:
            with self._lock, self._gateway.granted_before() as grants:
                ends = [End(grant.fence, Reason.DRAINED, detail=UNANSWERED) for grant in grants]
                if ends:
                    self._gateway.finish(ends)
        except ForgeError as error:
            log.warning("unanswered_claim_kept", error=error.message)
            return False
        if ends:
            log.info("unanswered_claim_given_back", jobs=len(ends))
        return True

    def took_one(self) -> None:
        """Record that a job runs here: an ephemeral worker takes only one."""
        # Not written back otherwise: `shut` may set it at this moment.
        if self.identity.ephemeral:
            self.closed = True

    def open(self) -> None:
        """Resume claiming."""
        self.closed = False
        self.woken.set()

    def choices(self) -> Sequence[Choice | None]:
        """Return the kinds of free GPU to claim for, one after another; none once closed."""
        return () if self.closed else self._slots.choices()

    @contextmanager
    def claimed(self, choice: Choice | None) -> Iterator[list[Granted]]:
        """Claim; the block starts the granted jobs before any other claim or close."""
        with self._lock, self._slots.offer(choice) as (free, room):
            count = min(room, self._wanted())
            if count <= 0:
                yield []
                return
            sent_s = seconds()
            _, grants = self._gateway.finish_and_claim([], free, count)
            yield self._with_slots(grants, sent_s)

    @property
    def waiting(self) -> int:
        """How many ends wait for a round trip that is under way."""
        return len(self._reports)

    def exchange(self, end: End, *, frees: bool = True) -> tuple[Ended, list[Granted]]:
        """Report an end, and claim a replacement in the same round trip.

        One caller also reports the ends that came meanwhile; each caller gets a share of the jobs
        that are granted for all of them. The attempt that ended counts as running until its caller
        has started these.

        Args:
            end: the end.
            frees: whether the job's resources are free; otherwise they are kept.

        Raises:
            EndNotTaken: a round trip for several ends failed; each may succeed by itself.
        """
        mine = EndReport(end, frees)
        if self._is_to_send(mine):
            with self._lock:
                while not mine.answered:
                    group = self._next_group()
                    ends = [report.end for report in group]
                    with self._room_after(group) as (free, count):
                        sent_s = seconds()
                        ended, grants = self._gateway.finish_and_claim(ends, free, count)
                        self._take_answer(group, ended, grants, sent_s)
                        if grants and len(grants) < count:
                            # The claim loop looks for more, and what is free is recorded.
                            self.woken.set()
                    for report in group:
                        report.told.release()
            self._pass_on()
        if mine.ended is None:
            assert mine.error is not None  # noqa: S101 - it was answered
            raise mine.error
        return mine.ended, mine.granted

    def _is_to_send(self, mine: EndReport) -> bool:
        """Wait until a report is answered, or return True if its thread is to send it."""
        with self._joining:
            self._reports.append(mine)
            waits, self._sending = self._sending, True
        if waits:
            # Not for the lock, where those with an answer would queue behind the next to send: a
            # worker with 64 slots of short jobs had 1,900 threads.
            mine.told.acquire()
        return not mine.answered

    def _pass_on(self) -> None:
        """Have a thread whose report came meanwhile send the next round trip."""
        with self._joining:
            self._sending = bool(self._reports)
            if self._reports:
                self._reports[0].told.release()

    def give_back(
        self, fence: Fence, error: Exception, reason: Reason = Reason.START_FAILED
    ) -> None:
        """Give back a job that could not be started: nobody works on its lease."""
        log.error("job_not_started", job=fence.job_id, exc_info=error)
        self._slots.take_back(fence.token)
        with suppress(ForgeError):
            self._gateway.finish([End(fence, reason, detail=str(error))])

    def _next_group(self) -> list[EndReport]:
        """Take the ends that wait, one of each job: a statement ends a job only once."""
        group: dict[int, EndReport] = {}
        again = []
        while self._reports and len(group) < TOGETHER:
            report = self._reports.popleft()
            if group.setdefault(report.end.fence.job_id, report) is not report:
                again.append(report)
        self._reports.extend(again)
        return list(group.values())

    @contextmanager
    def _room_after(self, group: Sequence[EndReport]) -> Iterator[tuple[Capacity, int]]:
        """Yield what is free once these jobs have ended, and how many to claim.

        An error in the block is not raised here, but by `exchange` in each caller's thread.
        """
        tokens = {report.end.fence.token for report in group if report.frees}
        try:
            choice = self._slots.choices(without=tokens)[0]
            with self._slots.offer(choice, without=tokens) as (free, room):
                yield free, max(0, min(room, self._wanted(len(group))))
        except Exception as error:  # noqa: BLE001 - as the docstring says
            _fail(group, error)

    def _take_answer(
        self,
        group: Sequence[EndReport],
        ended: Sequence[Ended],
        grants: Sequence[Grant],
        sent_s: float,
    ) -> None:
        for report in group:
            if report.frees:
                self._slots.take_back(report.end.fence.token)
        granted = self._with_slots(grants, sent_s)
        for report, its in zip(group, ended, strict=True):
            report.ended = its
        for n, one in enumerate(granted):
            group[n % len(group)].granted.append(one)

    def _wanted(self, ended: int = 0) -> int:
        if self.closed:
            return 0
        fit_for = self._room()
        most = 1 if self.identity.ephemeral else max(BATCH, ended)
        return most if fit_for is None else min(most, fit_for)

    def _with_slots(self, grants: Sequence[Grant], sent_s: float) -> list[Granted]:
        granted = []
        for grant in grants:
            self.took_one()
            try:
                slot = self._slots.lend(grant.fence.token, needs(grant))
            except Exception as error:  # noqa: BLE001 - it is logged, and the job is given back
                # One handed out again, or in a gang, was granted for what was free at the time.
                granted_before = grant.age_s > 0 or grant.nodes > 1
                reason = Reason.DRAINED if granted_before else Reason.START_FAILED
                self.give_back(grant.fence, error, reason)
            else:
                granted.append(Granted(grant, slot, sent_s - grant.age_s))
        return granted


class ClaimLoop(Loop):
    """Claims whenever there may be work or room, until nothing more is granted."""

    name = "claim"

    def __init__(
        self, claims: Claims, start: Callable[[Sequence[Granted]], None], *, period_s: float
    ) -> None:
        super().__init__(period_s, woken=claims.woken)
        self._claims = claims
        self._start = start

    def step(self) -> None:
        # Each kind of free GPU in turn.
        while any(map(self._claim, self._claims.choices())):
            pass

    def _claim(self, choice: Choice | None) -> bool:
        with self._claims.claimed(choice) as granted:
            self._start(granted)
        return bool(granted)


def _fail(group: Sequence[EndReport], error: Exception) -> None:
    """Have an end that was alone hear of the error itself; of several, one may be to blame."""
    if len(group) == 1:
        group[0].error = error
        return
    log.warning("ends_not_taken", ends=len(group), error=str(error))
    for report in group:
        report.error = EndNotTaken(str(error) or type(error).__name__)


def needs(grant: Grant) -> Capacity:
    """Return the resources that a granted job needs."""
    wanted = grant.spec["resources"]
    sizes = (wanted["cpus"], wanted["memory_mb"], wanted["disk_mb"], wanted["gpus"])
    return Capacity(*sizes, wanted.get("gpu_model", "*"), wanted.get("vram_mb", 0))
