"""One tick of the sweeper: move every row whose time has come."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from time import monotonic

import psycopg
import structlog

from forge_schema.database.pool import Database, DatabaseUnreachable, Row
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Ended, Fence, fence_params
from forge_schema.model.states import Reason
from forge_schema.notifications.messages import Noticing
from forge_schema.queue.limits import Limits
from forge_schema.queue.queue import Queue
from forge_schema.queue.reservation import PATIENCE_S
from forge_schema.schedules import DueSchedules
from forge_schema.sweeper.retention import Ageing, Ages

# Errors caused by the row itself, which a retry would only repeat.
IMPOSSIBLE = (psycopg.IntegrityError, psycopg.DataError)

BATCH = 500
# Maximum number of batches per step, so that a backlog does not delay other steps.
BATCHES = 40
# Fewer leases than this expiring together do not suggest a fault of the database.
BRAKE = 10
EVERY = timedelta(seconds=10)
# A tick is late if the last one was more than this many periods, or this fraction of a TTL, ago.
# Workers renew at least every half TTL, so each has a quarter of a TTL left to renew again.
# For a very short TTL it is half, or a busy machine's ticks would often be late.
LATE_PERIODS = 2.0
LATE_SHARE = 0.25
LATE_LEAST = timedelta(seconds=5)
# Late ticks in a row that postpone expiry; any further ones are the sweepers' normal pace.
LATE_HEEDED = 3
MEND_EVERY_S = 60.0
SUSPECT_EVERY_S = 30.0
# How long the workers that a job has woken may take to claim it.
WAKE_PATIENCE = timedelta(seconds=2)
# How long machines are kept for a gang the first time.
TURN = timedelta(minutes=5)
# How long a run computes before it may end to grow, and how long machines that it takes were idle.
GROWS_AFTER = timedelta(minutes=10)
SPARE = timedelta(minutes=3)
# Well above the time window in which a signed request is accepted.
NONCES = timedelta(minutes=15)

log = structlog.get_logger(__name__)


class Moves:
    """Moves a batch at once and, if that fails, row by row."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._database = queue.database

    def finish(self, ends: Sequence[End], *, expired_only: bool = False) -> list[Ended]:
        """End leases as `Queue.finish` does. Those set aside are left out of the result."""
        try:
            return self._queue.finish(ends, expired_only=expired_only)
        except IMPOSSIBLE as error:
            if len(ends) > 1:
                alone = (self.finish([end], expired_only=expired_only) for end in ends)
                return [ended for answer in alone for ended in answer]
            self._set_aside("lease", error, **fence_params(ends[0].fence))
            return []

    def settle(self, run: Row) -> int:
        """Settle a run; return 1 if it was not settled before, and 0 too if it is set aside."""
        try:
            return int(self._queue.runs.settle(run) is not None)
        except IMPOSSIBLE as error:
            fence = {name: run[name] for name in ("job_id", "token", "nonce")}
            self._set_aside("lease", error, **fence)
            return 0

    def promote(self, count: int) -> int:
        """Make up to `count` due jobs ready and return their number."""
        try:
            return self._promote(None, count)
        except IMPOSSIBLE:
            due = self._database.rows("due", again=True, count=count)
            return sum(self._promote_alone(row["job_id"]) for row in due)

    def _promote_alone(self, job_id: int) -> int:
        try:
            return self._promote(job_id, 1)
        except IMPOSSIBLE as error:
            self._set_aside("scheduled", error, job_id=job_id)
            return 0

    def _promote(self, job_id: int | None, count: int) -> int:
        params = {"job_id": job_id, "count": count, "actor": self._queue.actor}
        return len(self._database.rows("promote", again=True, **params))

    def _set_aside(self, place: str, error: Exception, **row: object) -> None:
        message = str(error).strip().partition("\n")[0]
        params = {**row, "error": message, "actor": self._queue.actor}
        self._database.rows(f"set_aside_{place}", again=True, **params)
        log.error("row_set_aside", place=place, job=row["job_id"], error=message)


@dataclass(frozen=True, slots=True)
class Windows:
    """Times after which the sweeper acts.

    A job that was asked to end is ended `overrun` after its grace period, or `storing` after it
    while its output is stored. A job that was never started is ended `preparing` after its claim.
    Workers hear of a gang at once and look for jobs every few seconds: one that did not fetch its
    lease within `fetching` is gone.
    Leases of workers over HTTP outlast their expiry by up to `unserved` while no server is there.
    """

    offline: timedelta = timedelta(seconds=120)
    reap_ephemeral: timedelta = timedelta(hours=1)
    reap_unconnected: timedelta = timedelta(minutes=5)
    overrun: timedelta = timedelta(minutes=5)
    storing: timedelta = timedelta(hours=2)
    preparing: timedelta = timedelta(hours=1)
    fetching: timedelta = timedelta(seconds=20)
    unserved: timedelta = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Moved:
    """The number of rows that each step of a tick moved."""

    requeued: int
    promoted: int
    overdue: int
    offline: int
    reaped: int
    overrun: int = 0
    thinned: int = 0
    fired: int = 0
    settled: int = 0
    noticed: int = 0


class Tick:
    """One round of the sweeper; each step is idempotent, and safe beside other sweepers.

    Args:
        queue: the queue; its TTL is the workers'.
        windows: the times after which the sweeper acts.
        every: how often a sweeper ticks. A much longer pause counts as an outage, after which the
            workers have one TTL to renew.
        brake: up to this many leases that expire together are ended without waiting.
        ages: the ages at which metrics and samples are thinned out.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        queue: Queue,
        *,
        windows: Windows | None = None,
        every: timedelta = EVERY,
        brake: int = BRAKE,
        ages: Ages | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._queue = queue
        self._database: Database = queue.database
        self._windows = windows or Windows()
        self._moves = Moves(queue)
        self._ageing = Ageing(queue.database, ages)
        self._due_schedules = DueSchedules(queue.database)
        self._noticing = Noticing(queue.database, actor=queue.actor)
        least = min(LATE_LEAST, queue.ttl / 2)
        self._gap = max(LATE_PERIODS * every, LATE_SHARE * queue.ttl, least)
        self._brake = brake
        self._holding = False
        self._limits = Limits(queue.database, actor=queue.actor)
        self._clock = clock
        self._mend_at = -math.inf
        self._suspect_at = -math.inf

    def run(self) -> Moved:
        """Requeue, promote, fire, enforce deadlines, mark offline, remove workers; then clean up.

        A failing step does not stop the others; its error is raised once all have run.
        """
        steps: dict[str, Callable[[], int]] = {
            "requeued": lambda: _batches(self.requeue),
            "promoted": lambda: _batches(self.promote),
            "drafted": self.draft,
            "grown": self.grow,
            "woken": self.wake_again,
            "displaced": self.displace,
            # One batch: each of its jobs is a submit of its own.
            "fired": self.fire,
            "overdue": self.ask_overdue,
            "overrun": self.end_overrun,
            "settled": self.settle,
            "offline": self.mark_offline,
            "reaped": self.reap,
            "counted": self.count_usage,
            "mended": self.mend,
            "judged_workers": self.suspect,
            "partitions": self.make_partitions,
            "nonces": self.forget_nonces,
            "thinned": self._ageing.thin,
            "withheld": self._noticing.withhold,
            # Last, so that it sees what the steps before it ended.
            "noticed": self._noticing.notice,
            "judged": lambda: _batches(self._noticing.judge),
            "forgotten": lambda: _batches(self._noticing.forget),
        }
        failed: list[Exception] = []
        moved = {name: _guarded(name, step, failed) for name, step in steps.items()}
        if failed:
            raise failed[0]
        return Moved(**{field.name: moved[field.name] for field in fields(Moved)})

    def mend(self) -> int:
        """Every minute, compare what runs with slots, turns and budgets; release stragglers."""
        if self._clock() < self._mend_at:
            return 0
        self._mend_at = self._clock() + MEND_EVERY_S
        self.hold_to_budgets()
        released = _batches(self.release_stragglers)
        return self._limits.mend_slots() + released + self.mend_turns()

    def hold_to_budgets(self) -> None:
        """Pause owners whose budget is spent; ask their jobs to go where that is wanted."""
        for owner, job_id in self._limits.count_spending():
            params = {"job_id": job_id, "actor": self._queue.actor, "owner": owner}
            self._database.rows("preempt", again=True, **params)

    def suspect(self) -> int:
        """Every half minute, have workers rest on which jobs fail that succeed elsewhere."""
        if self._clock() < self._suspect_at:
            return 0
        self._suspect_at = self._clock() + SUSPECT_EVERY_S
        changed: int = self._database.rows("suspect", again=True, actor=self._queue.actor)[0][
            "changed"
        ]
        return changed

    def release_stragglers(self) -> int:
        """Release a batch of held jobs that the end of another job left behind."""
        rows = self._database.rows("release_stragglers", again=True, count=BATCH)
        released: int = rows[0]["released"]
        return released

    def mend_turns(self) -> int:
        """Take the turns of jobs that ended, and give those that are free."""
        given: int = self._database.rows("mend_turns", again=True)[0]["given"]
        return given

    def count_usage(self) -> int:
        """Add what the owners' jobs hold to the owners' usage, which fair share compares."""
        counted: int = self._database.rows("count_usage", again=True)[0]["owners"]
        return counted

    def is_due(self, period: timedelta) -> bool:
        """Tell whether no sweeper has completed a tick within this time."""
        try:
            row = self._database.row("tick_due", again=True, period=period)
        except ForgeError:
            # The tick itself tells what is wrong, and does what it can.
            return True
        return row is None or bool(row["due"])

    def done(self) -> None:
        """Tell other sweepers that a tick is complete."""
        self._database.rows("tick_done", again=True)

    def make_partitions(self) -> int:
        """Create the coming monthly partitions, one table per statement."""
        made: int = self._database.rows("make_partitions", again=True)[0]["made"]
        return made + self.make_partitions() if made else 0

    def forget_nonces(self) -> int:
        """Delete the nonces of requests that are now too old to be accepted."""
        return len(self._database.rows("forget_nonces", again=True, older=NONCES))

    def requeue(self) -> int:
        """End a batch of expired leases as `worker_lost`. Each is checked once more."""
        rows = self._database.rows(
            "expired",
            again=True,
            ttl=self._queue.ttl,
            gap=self._gap,
            heeded=LATE_HEEDED,
            brake=self._brake,
            unserved=self._windows.unserved,
            count=BATCH,
        )
        self._tell(holds=rows[0]["holds"])
        held = [_fence(row) for row in rows if row["job_id"] is not None]
        ends = [End(fence, Reason.WORKER_LOST, detail="the lease ran out") for fence in held]
        return len(self._moves.finish(ends, expired_only=True))

    def _tell(self, *, holds: bool) -> None:
        if holds and not self._holding:
            log.info("leases_held")
        self._holding = holds

    def promote(self) -> int:
        """Make a batch of scheduled jobs ready that are due."""
        return self._moves.promote(BATCH)

    def wake_again(self) -> int:
        """Wake idle workers for jobs that they were woken for before and did not take."""
        return len(self._database.rows("wake_again", again=True, patience=WAKE_PATIENCE))

    def displace(self) -> int:
        """Have running jobs leave for waiting ones of a higher priority, where queues allow it."""
        row = self._database.rows("displace", again=True, actor=self._queue.actor)[0]
        displaced: int = row["displaced"]
        return displaced

    def draft(self) -> int:
        """Keep workers free for gangs that smaller jobs would starve; form those that can be."""
        patience = timedelta(seconds=PATIENCE_S)
        row = self._database.rows("draft", again=True, patience=patience, turn=TURN)[0]
        drafted: int = row["drafted"]
        return drafted

    def grow(self) -> int:
        """Have runs end that could go on with more machines."""
        times = {"computed": GROWS_AFTER, "waited": SPARE, "turn": TURN}
        row = self._database.rows("grow", again=True, actor=self._queue.actor, **times)[0]
        grown: int = row["grown"]
        return grown

    def fire(self) -> int:
        """Submit the jobs of a batch of schedules that are due."""
        return self._due_schedules.fire(BATCH)

    def ask_overdue(self) -> int:
        """Ask workers to end jobs past their time limit."""
        return len(self._database.rows("overdue", again=True, actor=self._queue.actor))

    def end_overrun(self) -> int:
        """End a batch of jobs whose workers did not end or start them in time."""
        windows = self._windows
        rows = self._database.rows(
            "overrun",
            again=True,
            patience=windows.overrun,
            storing=windows.storing,
            preparing=windows.preparing,
            fetching=windows.fetching,
            count=BATCH,
        )
        ends = [End(_fence(row), Reason(row["reason"]), detail=_why(row)) for row in rows]
        return sum(ended.accepted for ended in self._moves.finish(ends))

    def settle(self) -> int:
        """Settle the runs all of whose members are over, but whose last one did not."""
        return sum(map(self._moves.settle, self._queue.runs.whole()))

    def mark_offline(self) -> int:
        """Mark silent workers offline."""
        silence = self._windows.offline
        rows = self._database.rows("offline", again=True, silence=silence, actor=self._queue.actor)
        return len(rows)

    def reap(self) -> int:
        """Remove ephemeral workers offline for long, and workers that never connected."""
        rows = self._database.rows(
            "reap",
            again=True,
            ephemeral_after=self._windows.reap_ephemeral,
            unconnected_after=self._windows.reap_unconnected,
            actor=self._queue.actor,
        )
        return len(rows)


def _guarded(name: str, step: Callable[[], int], failed: list[Exception]) -> int:
    try:
        return step()
    except DatabaseUnreachable as error:
        if error.is_silent:
            raise
        failed.append(error)
    except Exception as error:  # noqa: BLE001 - the other steps must not depend on it
        failed.append(error)
    log.warning("step_failed", step=name, error=str(failed[-1]))
    return 0


def _fence(row: Row) -> Fence:
    return Fence(row["job_id"], row["token"], row["nonce"])


def _why(row: Row) -> str:
    if row["unfetched"]:
        return "its worker did not fetch its lease"
    started = row["reason"] != Reason.START_FAILED
    return "its worker did not end it" if started else "its worker did not start it"


def _batches(step: Callable[[], int]) -> int:
    moved = 0
    for _ in range(BATCHES):
        count = step()
        moved += count
        if count < BATCH:
            break
    return moved
