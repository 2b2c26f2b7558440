"""The expected behaviour of the queue, in single-threaded Python, for the state machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from forge_schema.model.lease import Ended, Fence, Grant
from forge_schema.model.states import Asked, Budget, DependencyKind, Phase, Reason, Standing, State
from forge_schema.sweeper.tick import BRAKE, LATE_HEEDED, Windows

if TYPE_CHECKING:
    from collections.abc import Iterable

GRACE = timedelta(seconds=30)
CHARGED = (Budget.FAILURES, Budget.LOSSES, Budget.PREEMPTIONS)
AT_ONCE = {Reason.WORKER_LOST, Reason.GPU_FAULT, Reason.PREEMPTED, Reason.DRAINED}


@dataclass
class Ending:
    """An ended attempt."""

    fence: Fence
    reason: Reason
    worker: int | None = None


@dataclass
class Need:
    """A job that another one waits for; `met` is None until that is settled, which is for good."""

    job_id: int
    kind: DependencyKind
    met: bool | None = None


@dataclass
class Job:
    """A job: its budgets, its place, and its history."""

    id: int
    nice: int
    zone: str | None
    limits: dict[Budget, int]
    backoff_s: int
    timeout_s: int | None
    state: State = State.READY
    spent: dict[Budget, int] = field(default_factory=lambda: dict.fromkeys(CHARGED, 0))
    attempt: int = 0
    run_at: datetime | None = None
    fence: Fence | None = None
    worker: int | None = None
    expires_at: datetime | None = None
    deadline_at: datetime | None = None
    asked: Asked | None = None
    asked_at: datetime | None = None
    # Asked to leave for another job or for its owner's budget, which costs it nothing.
    free: bool = False
    claimed_at: datetime | None = None
    started: bool = False
    phase: Phase | None = None
    reason: Reason | None = None
    accepted: Fence | None = None
    history: list[Ending] = field(default_factory=list)
    granted: list[Fence] = field(default_factory=list)
    may_run_again: bool = True
    checkpoints: set[tuple[int, int]] = field(default_factory=set)
    # What it waits for in `held`, and its cap if it is one of a sweep's.
    needs: list[Need] = field(default_factory=list)
    asks: bool = False
    parallel: int | None = None
    turn: bool = False
    begun: bool = False

    @property
    def spends(self) -> tuple[int, ...]:
        return tuple(self.spent[budget] for budget in CHARGED)

    def starts_free(self, reason: Reason) -> bool:
        """Tell whether a failed start is free of charge."""
        failed = [one.worker for one in self.history if one.reason is Reason.START_FAILED]
        return reason is Reason.START_FAILED and len(failed) < 3 and self.worker not in failed

    def verdict(self, reason: Reason) -> State:
        """Return the job's next place when its attempt ends like this, after it was charged."""
        if reason is Reason.SUCCEEDED:
            return State.SUCCEEDED
        if reason is Reason.CANCELLED or self.asked is Asked.CANCELLED:
            return State.CANCELLED
        if reason.budget is Budget.FINAL or self.asked is Asked.TIMEOUT:
            return State.FAILED
        if any(self.spent[budget] > self.limits[budget] for budget in CHARGED):
            return State.DEAD
        waits = reason.budget in CHARGED and reason not in AT_ONCE and self.backoff_s > 0
        return State.SCHEDULED if waits else State.READY


@dataclass
class Model:
    """All jobs, and the time."""

    now: datetime
    ttl: timedelta
    jobs: dict[int, Job] = field(default_factory=dict)
    # The cap of the sweep, if it was changed, and whether every request needs an approval now.
    cap: int | None = None
    asking: bool = False
    # Whether the owner's budget is spent, so that nothing new starts.
    held_back: bool = False

    def at(self, state: State) -> list[Job]:
        self.settle()
        return [job for job in self.jobs.values() if job.state is state]

    def claimable(self, zone: str | None) -> list[Job]:
        """Return the jobs that a worker of a zone can serve, best first."""
        ready = [] if self.held_back else self.at(State.READY)
        fitting = [job for job in ready if job.zone in {None, zone}]
        return sorted(fitting, key=lambda job: (job.nice, job.id))

    def grant(self, worker: int, grants: Iterable[Grant]) -> None:
        """Take leases as granted."""
        for grant in grants:
            self.lease(worker, self.jobs[grant.fence.job_id], grant.fence)

    def lease(self, worker: int, job: Job, fence: Fence) -> None:
        """Take a lease as granted."""
        assert job.may_run_again, "a cancelled job runs again"
        assert not job.asks, "it runs unapproved"
        assert all(need.met for need in job.needs), "it runs before what it needs"
        assert job.turn == (job.parallel is not None), "it runs out of turn"
        job.state, job.fence, job.worker = State.RUNNING, fence, worker
        job.attempt, job.phase = job.attempt + 1, Phase.CLAIMED
        job.expires_at = self.now + self.ttl
        job.begun = job.begun or job.started
        job.claimed_at, job.started = self.now, False
        job.granted.append(fence)

    def held(self, fence: Fence) -> Job | None:
        """Return the job that a fence holds."""
        job = self.jobs[fence.job_id]
        return job if job.fence == fence else None

    def end(self, fence: Fence, reason: Reason) -> Ended:
        """End an attempt, or return how it ended earlier."""
        job = self.held(fence)
        if job is None:
            return self.ended(fence, reason)
        makes_room = job.free and job.asked is Asked.PREEMPTED
        if reason.budget is Budget.PREEMPTIONS and makes_room:
            pass
        elif reason.budget in CHARGED and not job.starts_free(reason):
            job.spent[reason.budget] += 1
        job.history.append(Ending(fence, reason, job.worker))
        job.state = job.verdict(reason)
        if job.state.terminal:
            job.accepted, job.reason = fence, self.told(job, reason)
            job.may_run_again = job.state in {State.FAILED, State.DEAD}
        job.fence = job.worker = job.expires_at = job.deadline_at = None
        job.asked, job.asked_at, job.free = None, None, False
        return Ended(job.id, accepted=True, reason=reason, state=job.state)

    @staticmethod
    def told(job: Job, reason: Reason) -> Reason:
        """Return the reason that the outcome reports."""
        if job.state is State.CANCELLED:
            return Reason.CANCELLED
        if job.state is State.FAILED and job.asked is Asked.TIMEOUT:
            return Reason.TIMEOUT
        return reason

    def ended(self, fence: Fence, reason: Reason) -> Ended:
        """Return how an attempt ended earlier."""
        job = self.jobs[fence.job_id]
        for ending in job.history:
            if ending.fence == fence:
                same = ending.reason is reason
                return Ended(job.id, accepted=same, reason=ending.reason, state=job.state)
        return Ended(job.id, accepted=False)

    def standing(self, fence: Fence) -> Standing:
        job = self.held(fence)
        if job is None:
            return Standing.LOST
        return Standing(job.asked.value) if job.asked else Standing.OK

    def cancel(self, job: Job) -> State:
        """Cancel a waiting job; request the cancellation of a running one."""
        if job.state is State.RUNNING:
            job.asked = Asked.CANCELLED
            job.may_run_again = False
        elif not job.state.terminal:
            job.state, job.reason, job.may_run_again = State.CANCELLED, Reason.CANCELLED, False
            job.accepted, job.asks = None, False
            self._leave_unmet(job)
        return job.state

    def retry(self, job: Job) -> bool:
        """Reopen a failed or dead job; return False if it is neither."""
        if job.state not in {State.FAILED, State.DEAD}:
            return False
        job.asks, job.turn = self.asking, False
        job.state = State.HELD if job.asks or job.parallel else State.READY
        job.reason = job.accepted = None
        job.spent = dict.fromkeys(CHARGED, 0)
        return True

    def settle(self) -> None:
        """Release and cancel held jobs, and pass on turns, as the last statement should have done.

        It is called before every look at the model, and so after each statement.
        """
        while failed := [job for job in self._held() if self._has_failed(job)]:
            for job in failed:
                job.state, job.reason = State.CANCELLED, Reason.DEPENDENCY_FAILED
                job.accepted, job.may_run_again = None, False
                self._leave_unmet(job)
        for job in self._held():
            if job.parallel is None and self._is_free(job):
                self._let_go(job)
        for job in self.jobs.values():
            job.turn = job.turn and not job.state.terminal
        for job in self.in_line():
            if self.turns() >= (self.cap or job.parallel or 0):
                break
            job.turn = True
            self._let_go(job)

    def in_line(self) -> list[Job]:
        """Return the jobs that wait for nothing but their turn, the first one first."""
        return [job for job in self._held() if job.parallel and self._is_free(job)]

    def turns(self) -> int:
        """Return how many jobs of the sweep have a turn."""
        return sum(job.turn for job in self.jobs.values())

    def approve(self, job: Job) -> bool:
        """Approve a job; return False if it does not wait for that."""
        waits = job.state is State.HELD and job.asks
        job.asks = job.asks and not waits
        return waits

    def _held(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state is State.HELD]

    def _has_failed(self, job: Job) -> bool:
        for need in job.needs:
            if need.met is None:
                need.met = self._fate(need)
        return any(need.met is False for need in job.needs)

    def _fate(self, need: Need) -> bool | None:
        other = self.jobs[need.job_id]
        over = other.state.terminal
        if need.kind is DependencyKind.AFTER:
            return over or other.begun or other.started or None
        if need.kind is DependencyKind.AFTER_OK and over:
            return other.state is State.SUCCEEDED
        return over or None

    @staticmethod
    def _leave_unmet(job: Job) -> None:
        for need in job.needs:
            need.met = bool(need.met)

    @staticmethod
    def _is_free(job: Job) -> bool:
        return not job.asks and all(need.met for need in job.needs)

    def _let_go(self, job: Job) -> None:
        later = job.run_at is not None and job.run_at > self.now
        job.state = State.SCHEDULED if later else State.READY
        job.run_at = job.run_at if later else None

    def expired(self) -> list[Job]:
        """Return the jobs that the tick requeues now."""
        running = self.at(State.RUNNING)
        due = [job for job in running if job.expires_at and job.expires_at < self.now]
        soon = self.now + self.ttl / 3
        silent = [job for job in running if job.expires_at and job.expires_at < soon]
        if len(silent) <= BRAKE or 2 * len(silent) <= len(running):
            return due
        return [job for job in due if job.expires_at and job.expires_at < self.now - self.ttl]

    def due(self) -> list[Job]:
        """Return the jobs that the tick promotes now."""
        return [job for job in self.at(State.SCHEDULED) if job.run_at and job.run_at <= self.now]

    def overrun(self, windows: Windows) -> list[tuple[Job, Reason]]:
        """Return the jobs that the tick itself ends now, with reasons; record requests to end."""
        over = [(job, self._why(job)) for job in self.at(State.RUNNING) if self._over(job, windows)]
        for job in self.at(State.RUNNING):
            if job.asked is not None:
                job.asked_at = job.asked_at or self.now
        return over

    def _over(self, job: Job, windows: Windows) -> bool:
        if job.asked is not None:
            storing = job.phase is Phase.FINISHING
            patience = GRACE + (windows.storing if storing else windows.overrun)
            return job.asked_at is not None and job.asked_at < self.now - patience
        waits = not job.started and job.phase in {Phase.CLAIMED, Phase.PREPARING}
        assert job.claimed_at is not None
        return waits and job.claimed_at < self.now - windows.preparing

    def _why(self, job: Job) -> Reason:
        late = job.deadline_at is not None and job.deadline_at < self.now
        if job.asked is Asked.PREEMPTED and late:
            return Reason.TIMEOUT
        return Reason(job.asked.value) if job.asked else Reason.START_FAILED

    def overdue(self) -> list[Job]:
        """Return the jobs that the tick asks to end now."""
        running = [job for job in self.at(State.RUNNING) if job.asked is None]
        return [job for job in running if job.deadline_at and job.deadline_at < self.now]


@dataclass
class Sweepers:
    """The sweepers' shared memory: when one of them last ran, and until when all hold off."""

    ticked_at: datetime
    ttl: timedelta
    gap: timedelta | None = timedelta()
    gaps: int = 0
    holds_until: datetime | None = None

    def look(self, now: datetime, gap: timedelta | None) -> bool:
        """Record a look for expired leases; return True when none may be ended.

        Without a gap, no pause is too long.
        """
        away = False
        if gap is not None and self.gap is not None:
            away = self.ticked_at < now - max(gap, self.gap)
        held = self.holds_until is not None and self.holds_until > now
        longest = now + self.ttl
        heeded = away and self.gaps < LATE_HEEDED
        self.holds_until = longest if heeded else min(self.holds_until or now, longest)
        self.gaps = min(self.gaps + 1, LATE_HEEDED) if away else self.gaps if held else 0
        self.ticked_at, self.gap = now, gap
        return self.holds_until > now


def as_modelled(job: Job) -> tuple[object, ...]:
    """Return a job as the row that the tables should have."""
    budgets = None if job.state.terminal else job.spends
    ends = (job.worker, job.expires_at, job.deadline_at, job.asked)
    run_at = job.run_at if job.state is State.SCHEDULED else None
    held = job.accepted if job.state.terminal else job.fence
    return (job.state, job.attempt, held, *ends, run_at, job.reason, budgets)
