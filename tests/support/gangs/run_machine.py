"""A state machine of runs on several machines: members end in any order, and more than once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forge_schema.ending import CAUSE, ECHO, LIKELY_ECHO
from forge_schema.model.lease import End
from forge_schema.model.states import Asked, Budget, Phase, Reason, Standing, State
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.database.clock import START
from support.gangs.runs import formed, gang
from support.queue.queue_tables import empty

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.gangs.runs import Run
    from support.queue.rig import Rig, Worker

MOST = 1  # of each budget
CHARGED = (Budget.FAILURES, Budget.LOSSES, Budget.PREEMPTIONS)
RESET = "Connection reset by peer"
# A failed start may be free of charge, which test_queue_budgets.py is about.
REASONS = [
    reason
    for reason in Reason
    if reason not in {Reason.START_FAILED, Reason.DEPENDENCY_FAILED, Reason.SUCCEEDED}
]
CHECKPOINT = """
    INSERT INTO checkpoint (job_id, token, number, attempt, created_at, key, files, bytes)
    SELECT job_id, token, 0, attempt, forge_now(), 'k', 1, 1 FROM lease
    WHERE job_id = %s AND rank = 0
"""
SPARE = """
    INSERT INTO idle (
        worker_id, gpu_model, boot_id, cpus, memory_mb, disk_mb, gpus, vram_mb, nonce, since
    )
    SELECT
        id, '', boot_id, cpus, memory_mb, disk_mb, 0, 0, gen_random_uuid(),
        forge_now()
    FROM worker WHERE id = %s
"""
GROW = "SELECT forge_grow('0 s', '0 s', '5 minutes', 'sweeper') AS grown"
reasons = st.one_of(st.just(Reason.EXIT_CODE), st.sampled_from(REASONS))
some = st.integers(0, 99)


@dataclass
class Member:
    """What the model knows of one rank; `over` is its reason, its level and when it ended."""

    asked: Asked | None = None
    over: tuple[Reason, int, float] | None = None


@dataclass
class Gang:
    """What the model knows of a job."""

    id: int
    launcher: str
    ranged: bool = False
    run: Run | None = None
    members: list[Member] = field(default_factory=list)
    state: State = State.READY
    spent: dict[Budget, int] = field(default_factory=lambda: dict.fromkeys(CHARGED, 0))
    stored: list[list[Reason]] = field(default_factory=list)
    past: list[tuple[Run, int, Reason]] = field(default_factory=list)

    @property
    def left(self) -> list[int]:
        """The ranks that are not over."""
        return [rank for rank, member in enumerate(self.members) if member.over is None]

    def ask(self, asked: Asked, *, besides: int | None = None) -> None:
        for rank in self.left:
            if rank != besides and self.members[rank].asked is None:
                self.members[rank].asked = asked

    def end(self, rank: int, reason: Reason, level: int, at: float) -> None:
        self.members[rank].over = reason, level, at
        if reason is not Reason.SUCCEEDED or (rank == 0 and self.launcher == "ray"):
            self.ask(Asked.ENDED, besides=rank)

    def settle(self) -> None:
        """End the run, if all members are over."""
        if self.run is None or self.left:
            return
        first = self._decides()
        reason = self._over(first)[0]
        self.stored.append([
            reason if rank == first else self._as_stored(rank, reason)
            for rank in range(len(self.members))
        ])  # fmt: skip
        self.past += [(self.run, rank, self.stored[-1][rank]) for rank in range(len(self.members))]
        if reason.budget in self.spent:
            self.spent[reason.budget] += 1
        self.state = self._verdict(reason, self.members[first].asked)
        self.run, self.members = None, []

    def _decides(self) -> int:
        ends = [
            (self._over(rank)[1], self._over(rank)[2], rank)
            for rank in range(len(self.members))
            if self._over(rank)[0] is not Reason.SUCCEEDED or (rank == 0 and self.launcher == "ray")
        ]
        return min(ends, default=(0, 0.0, 0))[2]

    def _as_stored(self, rank: int, decisive: Reason) -> Reason:
        """Return another member's reason: of two that find no network, one decides."""
        own, level, _ = self._over(rank)
        undone = own is Reason.SUCCEEDED and decisive is not Reason.SUCCEEDED
        doubled = own is decisive is Reason.PREFLIGHT_FAILED
        return Reason.RUN_ENDED if level or undone or doubled else own

    def _over(self, rank: int) -> tuple[Reason, int, float]:
        over = self.members[rank].over
        assert over is not None
        return over

    def _verdict(self, reason: Reason, asked: Asked | None) -> State:
        if reason is Reason.SUCCEEDED:
            return State.SUCCEEDED
        if reason.budget is Budget.CANCEL or asked is Asked.CANCELLED:
            return State.CANCELLED
        if reason.budget is Budget.FINAL:
            return State.FAILED
        return State.DEAD if max(self.spent.values()) > MOST else State.READY


class RunMachine(RuleBasedStateMachine):
    """Drives runs on a real queue and a model of them, and compares the two after every step."""

    rig: Rig
    team: Sequence[Worker]

    def __init__(self) -> None:
        super().__init__()
        empty(self.rig)
        self.rig.clock.set(START)
        self.now = 0.0
        self.gangs: list[Gang] = []

    @initialize(
        launchers=st.lists(st.sampled_from(["torchrun", "ray"]), min_size=1, max_size=2),
        ranged=st.booleans(),
    )
    def submit(self, launchers: list[str], *, ranged: bool) -> None:
        limits = {"max_failures": MOST, "max_losses": MOST, "max_preemptions": MOST}
        for n, launcher in enumerate(launchers):
            # The second one could not have the machine by which the first one grows.
            kind = {"labels": {"zone": "moon"}} if n else {"max_nodes": 3 if ranged else None}
            job_id = gang(self.rig, 3 - (ranged and not n), launcher, backoff_s=0, **kind, **limits)
            self.gangs.append(Gang(job_id, launcher, ranged and not n))

    @precondition(lambda self: any(one.state is State.READY for one in self.gangs))
    @rule(number=some, size=st.sampled_from([2, 2, 2, 3]))
    def form(self, number: int, size: int) -> None:
        waiting = [one for one in self.gangs if one.state is State.READY]
        one = waiting[number % len(waiting)]
        team = list(self.team[: size if one.ranged else 3])
        one.run = formed(self.rig, one.id, team)
        one.members, one.state = [Member() for _ in team], State.RUNNING

    @precondition(lambda self: self._small() is not None)
    @rule()
    def grow(self) -> None:
        """A sweeper has a run end, for which the third worker has been idle."""
        one = self._small()
        assert one is not None
        assert one.run is not None
        one.run.start()
        self.rig.rows(CHECKPOINT, one.id)
        # The machines may keep room for a job that lost one of them: it lets them go.
        for table in ("draft", "forming"):
            self.rig.rows(f"DELETE FROM {table}")
        self.rig.rows(SPARE, self.team[2].id)
        grown = self.rig.row(GROW)["grown"]
        # As when the next run has formed.
        for table in ("idle", "draft", "forming"):
            self.rig.rows(f"DELETE FROM {table}")
        assert grown == 1
        one.ask(Asked.ENDED)

    @precondition(lambda self: self._running())
    @rule(number=some, rank=some, reason=reasons, reset=st.booleans())
    def fail(self, number: int, rank: int, reason: Reason, *, reset: bool) -> None:
        self._end(number, rank, reason, RESET if reset else "boom")

    @precondition(lambda self: self._running())
    @rule(number=some, ranks=st.permutations(range(3)), count=st.integers(1, 3))
    def succeed(self, number: int, ranks: list[int], count: int) -> None:
        for rank in ranks[:count]:
            # Of two members, one succeeds twice.
            self._end(number, rank, Reason.SUCCEEDED, None)

    @precondition(lambda self: self._running())
    @rule(number=some)
    def stop_those_that_were_asked(self, number: int) -> None:
        one = self._one(number)
        for rank in one.left:
            if one.run and one.members[rank].asked is Asked.ENDED:
                self._end(number, rank, Reason.RUN_ENDED, None)

    @precondition(lambda self: self._running())
    @rule(number=some, rank=some)
    def begin_to_stop(self, number: int, rank: int) -> None:
        one = self._one(number)
        assert one.run is not None
        rank %= len(one.members)
        asked = one.members[rank].asked
        told = self.rig.queue.report(one.run.fences[rank], Phase.STOPPING)
        if rank not in one.left:
            assert told is Standing.LOST
            return
        assert told is Standing(asked or Standing.OK)
        one.ask(Asked.ENDED, besides=rank)

    @precondition(lambda self: self._running())
    @rule(number=some, verb=st.sampled_from(["cancel", "preempt"]))
    def ask(self, number: int, verb: str) -> None:
        one = self._one(number)
        if verb == "preempt":
            assert self.rig.queue.preempt(one.id)
            one.ask(Asked.PREEMPTED)
        else:
            assert self.rig.queue.cancel(one.id) is State.RUNNING
            for member in one.members:
                member.asked = Asked.CANCELLED

    @precondition(lambda self: self._running())
    @rule(number=some, ranks=st.sets(st.integers(0, 2), min_size=1))
    def lose(self, number: int, ranks: set[int]) -> None:
        """Let the leases of some members run out, and those of no other job."""
        lost = self._one(number)
        self._pass(self.rig.queue.ttl.total_seconds() - 1)
        for one in self.gangs:
            for rank, member in enumerate(one.members):
                if one is not lost or rank not in ranks:
                    assert one.run is not None
                    told = one.run.standing(rank)
                    assert (told is Standing.LOST) == (member.over is not None)
        self._pass(2)
        gone = ranks & set(lost.left)
        assert self.rig.tick.requeue() == len(gone)
        for rank in sorted(gone):
            lost.end(rank, Reason.WORKER_LOST, CAUSE, self.now)
        lost.settle()

    @precondition(lambda self: any(one.past for one in self.gangs))
    @rule(number=some, reason=st.sampled_from(REASONS))
    def speak_after_the_end(self, number: int, reason: Reason) -> None:
        past = [ended for one in self.gangs for ended in one.past]
        run, rank, stored = past[number % len(past)]
        told = run.end(rank, reason)
        assert (told.accepted, told.reason) == (reason is stored, stored)
        assert run.standing(rank) is Standing.LOST

    @rule()
    def tick(self) -> None:
        """A sweeper finds nothing to settle, as long as no process died."""
        assert self.rig.tick.settle() == 0

    @invariant()
    def every_member_is_as_the_model_has_it(self) -> None:
        rows = self.rig.rows("SELECT job_id, rank, asked, over ->> 'reason' AS reason FROM lease")
        found = {(r["job_id"], r["rank"]): (r["asked"], r["reason"]) for r in rows}
        known = {
            (one.id, rank): (member.asked, member.over and member.over[0])
            for one in self.gangs
            for rank, member in enumerate(one.members)
        }
        assert found == known

    @invariant()
    def every_job_is_in_one_place_with_its_budgets(self) -> None:
        for one in self.gangs:
            assert self.rig.state(one.id) is one.state
            assert len(set(self.rig.places(one.id))) == 1
            if one.state is State.READY:
                counts = "SELECT failures, losses, preemptions FROM ready WHERE job_id = %s"
                assert list(self.rig.row(counts, one.id).values()) == list(one.spent.values())

    @invariant()
    def every_run_is_stored_once_with_all_its_ranks(self) -> None:
        for one in self.gangs:
            rows = self.rig.jobs.attempts(one.id)
            places = [(row["attempt"], row["rank"]) for row in rows]
            assert places == [
                (n, rank) for n, run in enumerate(one.stored, 1) for rank in range(len(run))
            ]
            assert [row["reason"] for row in rows] == [r for run in one.stored for r in run]

    def _running(self) -> list[Gang]:
        return [one for one in self.gangs if one.run is not None]

    def _one(self, number: int) -> Gang:
        running = self._running()
        return running[number % len(running)]

    def _small(self) -> Gang | None:
        """Return the run that could go on with more machines, if nobody ends it so far."""
        one = self.gangs[0]
        ends = any(member.asked or member.over for member in one.members)
        return one if one.ranged and len(one.members) == 2 and not ends else None

    def _pass(self, seconds: float) -> None:
        self.rig.clock.advance(seconds)
        self.now += seconds

    def _end(self, number: int, rank: int, reason: Reason, detail: str | None) -> None:
        """End a member, twice; one that is over answers what it answered before."""
        if not self._running():
            return
        one = self._one(number)
        assert one.run is not None
        self._pass(1)
        rank %= len(one.members)
        run, member = one.run, one.members[rank]
        if member.over is None:
            one.end(rank, reason, _level(reason, detail, member.asked), self.now)
        assert member.over is not None
        before = member.over[0]
        one.settle()
        ends = [End(run.fences[rank], reason, 1, detail)]
        told = self.rig.queue.finish(ends)
        assert told[0].accepted == (reason is before)
        assert told[0].state is one.state
        stored = before if one.members else one.stored[-1][rank]
        again = self.rig.queue.finish(ends)[0]
        assert (again.reason, again.state) == (stored, one.state)


def _level(reason: Reason, detail: str | None, asked: Asked | None) -> int:
    if reason is Reason.RUN_ENDED:
        return ECHO
    if reason is not Reason.EXIT_CODE:
        return CAUSE
    if detail == RESET:
        return ECHO
    return LIKELY_ECHO if asked is Asked.ENDED else CAUSE
