"""The state machine over time: leases expire, sweepers tick and die, others act in between."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.lease import End
from forge_schema.model.states import Asked, Reason, State
from forge_schema.queue.queue import LEASE_TTL, Queue
from forge_schema.sweeper.tick import EVERY, LATE_PERIODS, LATE_SHARE, Tick, Windows
from hypothesis import strategies as st
from hypothesis.stateful import MultipleResults, invariant, multiple, precondition, rule
from support.queue.queue_machine import GIVES_UP, QueueMachine, lost, some, workers
from support.queue.queue_model import GRACE, Sweepers

if TYPE_CHECKING:
    from datetime import timedelta

    from forge_schema.model.lease import Fence
    from support.queue.queue_model import Job

TICK = ("expired", "finish", "promote", "overdue", "offline", "reap", "make_partitions")
WINDOWS = Windows()
BEFORE_OVERRUN = {"finish", "promote", "overdue"}
GAP = max(LATE_PERIODS * EVERY, LATE_SHARE * LEASE_TTL)
FRESH_SWEEPER = """
    UPDATE sweeper SET ticked_at = forge_now(), gap = NULL, gaps = 0, holds_until = NULL
"""
BESIDE = ("tick", "renew", "succeed", "preempted", "stalled", "cancel")


class RacingMachine(QueueMachine):
    """The whole state machine; `examples` and `steps` count the runs."""

    examples = 0
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).examples += 1
        self.rig.database.meanwhile.clear()
        # The same steps give the same result, including pauses drawn at random.
        with self.rig.database.connection() as connection:
            connection.execute("SELECT setseed(0.5)")
        self.rig.rows(FRESH_SWEEPER)
        self.sweepers = Sweepers(self.model.now, self.model.ttl)
        self.watchful = Tick(Queue(self.rig.database, actor="sweeper"))

    @invariant()
    def every_step_is_counted(self) -> None:
        type(self).steps += 1

    # The passing of time.

    @rule(seconds=st.sampled_from([1, 10, 31, 60, 119, 121, 300]))
    def advance(self, seconds: int) -> None:
        self.rig.clock.advance(seconds)
        self.model.now = self.rig.clock.now

    @precondition(lambda self: self.model.at(State.RUNNING))
    @rule()
    def let_leases_run_out(self) -> None:
        self.advance(121)
        self.tick(None)

    @precondition(lambda self: self.model.at(State.RUNNING))
    @rule(number=some)
    def let_a_job_take_too_long(self, number: int) -> None:
        self.report_what_runs(number, lost=0)
        self.advance(31)
        self.tick(None)

    @precondition(lambda self: self.model.at(State.RUNNING))
    @rule(number=some, verb=st.sampled_from(["cancel", "preempt"]), again=st.booleans())
    def let_what_was_asked_for_be_held_on_to(self, number: int, verb: str, *, again: bool) -> None:
        """Its worker keeps renewing, and does not end it."""
        job = self._running(number)
        self.report_what_runs(number, lost=0)
        self.administer(job.id, verb, lost=0)
        self.tick(None)
        for _ in range(4 if again else 3):
            self.advance(110)
            if job.state is State.RUNNING:
                self._renew_by_holder(job)
            self.tick(None)

    @precondition(lambda self: self.model.at(State.SCHEDULED))
    @rule()
    def let_pauses_end(self) -> None:
        self.advance(60)
        self.tick(None)

    @rule(lost=st.sampled_from([None, None, None, None, *TICK]), times=st.sampled_from([1, 4]))
    def tick(self, lost: str | None, times: int = 1) -> None:
        if lost is not None and times >= GIVES_UP:
            self._tick_until(lost)
            lost = None
        listed = self._listed(2 if lost == "expired" else 1)
        self.rig.database.losing = [] if lost is None else [lost]
        ticked = self.rig.tick.run()
        self.rig.database.losing.clear()
        moved = self._moved(listed)
        if lost is None:
            assert (ticked.requeued, ticked.promoted, ticked.overdue, ticked.reaped) == (*moved, 0)
        self._what_was_asked_to_end_ends()

    def _what_was_asked_to_end_ends(self) -> None:
        longest = GRACE + WINDOWS.storing
        held = self.rig.rows("SELECT * FROM lease WHERE asked_at < %s", self.model.now - longest)
        assert not held

    def _tick_until(self, statement: str) -> None:
        """Let a sweeper die after it ran a statement; the next sweeper does the rest."""
        listed = self._listed(GIVES_UP if statement == "expired" else 1)
        self.rig.database.lose(*[statement] * GIVES_UP)
        try:
            self.rig.tick.run()
        except DatabaseUnreachable:
            until = statement
        else:
            until = ""
        self.rig.database.losing.clear()
        if until == "finish" and not listed:
            # It died after ending the leases that were held too long.
            until = ""
        if until != "expired":
            self._moved(listed, until)

    def _listed(self, looks: int = 1, gap: timedelta | None = None) -> list[Job]:
        """Return the expired leases that a sweeper finds, unless the sweepers hold off."""
        holds = [self.sweepers.look(self.model.now, gap) for _ in range(looks)]
        return [] if holds[-1] else self.model.expired()

    @rule(seconds=st.sampled_from([10, 29, 31, 121, 250]), times=st.integers(1, 5))
    def tick_after_pauses(self, seconds: int, times: int) -> None:
        """A sweeper takes long pauses for outages: it holds off first, and later does not."""
        for _ in range(times):
            self.advance(seconds)
            listed = self._listed(gap=GAP)
            ticked = self.watchful.run()
            assert (ticked.requeued, ticked.promoted, ticked.overdue) == self._moved(listed)

    def _moved(self, listed: list[Job], until: str = "") -> tuple[int, int, int]:
        """Apply to the model a tick that found these leases expired."""
        expired = [job for job in listed if job.expires_at and job.expires_at < self.model.now]
        for job in expired:
            assert job.fence is not None
            self.model.end(job.fence, Reason.WORKER_LOST)
        due = [] if until == "finish" else self.model.due()
        for job in due:
            job.state, job.run_at = State.READY, None
        overdue = [] if until in {"finish", "promote"} else self.model.overdue()
        for job in overdue:
            job.asked = Asked.TIMEOUT
        self.told["promoted"] += len(due)
        for job, reason in [] if until in BEFORE_OVERRUN else self.model.overrun(WINDOWS):
            assert job.fence is not None
            self.model.end(job.fence, reason)
        return len(expired), len(due), len(overdue)

    # Concurrent actions of others.

    @precondition(lambda self: self.model.at(State.RUNNING))
    @rule(number=some, what=st.sampled_from(BESIDE), seconds=st.sampled_from([121, 121, 250]))
    def tick_while_others_act(self, number: int, what: str, seconds: int) -> None:
        """A sweeper has found expired leases; others act before its second look."""
        self.advance(seconds)
        listed = self._listed()
        act = partial(self._act, what, self._running(number))
        self.rig.database.meanwhile["expired"] = act
        ticked = self.rig.tick.run()
        moved = self._moved([job for job in listed if job.state is State.RUNNING])
        assert (ticked.requeued, ticked.promoted, ticked.overdue) == moved

    def _act(self, what: str, job: Job) -> None:
        if what == "tick":
            self._tick_elsewhere()
        elif what == "cancel":
            self._cancel(job.id, lost=0)
        elif what == "renew":
            self._renew_by_holder(job)
        else:
            self._end_by_holder(job, Reason(what.replace("succeed", "succeeded")))

    def _tick_elsewhere(self) -> None:
        listed = self._listed(gap=GAP)
        ticked = self.watchful.run()
        assert (ticked.requeued, ticked.promoted, ticked.overdue) == self._moved(listed)

    def _renew_by_holder(self, job: Job) -> None:
        assert job.fence is not None
        (number,) = [n for n, worker in enumerate(self.team) if worker.id == job.worker]
        self.renew(number, job.fence, [], lost=0)

    def _end_by_holder(self, job: Job, reason: Reason) -> None:
        assert job.fence is not None
        self.finish(job.fence, [], [reason], lost=0)

    @rule(number=workers, lost=lost)
    def restart_the_agent(self, number: int, *, lost: int) -> None:
        """A new boot of a worker keeps its leases, and its older boot is refused."""
        worker = self.team[number]
        worker.machine = replace(worker.machine, boot_id=uuid4())
        register = partial(self.rig.registry.register, worker.name, worker.machine)
        assert self._call("register", lost, register) == worker.id

    @precondition(lambda self: self.model.at(State.RUNNING))
    @rule(target=QueueMachine.fences, number=some, times=st.integers(2, 10))
    def preempt_again_and_again(self, number: int, times: int) -> MultipleResults[Fence]:
        """A job may be given back any number of times, without a charged failure or a wait."""
        job, granted = self._running(number), []
        failures, losses, _ = job.spends
        for _ in range(times):
            if job.fence is None:
                break
            end = End(job.fence, Reason.PREEMPTED)
            assert self.rig.queue.finish([end])[0] == self._end(end)
            assert job.state is not State.SCHEDULED
            assert job.spends[:2] == (failures, losses)
            # The worker that serves every zone, and reads its lanes anew.
            grants = self.team[0].claim(1)
            wanted = self.model.claimable(self._zone(0))
            self._granted(0, wanted, 1, [grant.fence for grant in grants])
            granted += [grant.fence for grant in grants]
        return multiple(*granted)
