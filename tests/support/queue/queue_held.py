"""The state machine with held jobs: they wait for other jobs, for approval, or for their turn."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.lease import Fence
from forge_schema.model.states import DependencyKind, Reason, State
from forge_schema.queue.cancel_retry import JobActs
from forge_schema.read.runs import Benchmarks, SweepUnknown
from forge_schema.service.changing import Change, NotChangeable
from hypothesis import strategies as st
from hypothesis.stateful import (
    MultipleResults,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from support.queue.queue_machine import QueueMachine, lost, small, some, workers
from support.queue.queue_model import CHARGED, Job, Need
from support.queue.queue_sources import SourcedMachine
from support.queue.rig import spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SERVES_ALL = 0  # the worker in the zone that some jobs want
SWEEP, OWN_CAP = "s", 2
LINE = f"ann/{SWEEP}"
OUT = """
    SELECT job_id FROM ready
    UNION ALL SELECT job_id FROM scheduled
    UNION ALL SELECT job_id FROM lease
"""
mostly, seldom = st.sampled_from([True, True, False]), st.sampled_from([False, False, True])
kinds = st.sampled_from(DependencyKind)
ends = st.sampled_from([Reason.SUCCEEDED, Reason.EXIT_CODE, Reason.PREEMPTED])


class HeldMachine(SourcedMachine):
    """No job starts before what it needs, unapproved, or out of turn; a failed need cancels."""

    def __init__(self) -> None:
        super().__init__()
        self.told |= dict.fromkeys(
            ("approved", "asked for approval", "sweep parallel set", "changed"), 0
        )
        self.approved: set[int] = set()
        self.turns = 0
        self.rig.rows("UPDATE owner_quota SET approve_cost = NULL")

    @initialize(
        target=QueueMachine.jobs,
        plan=st.lists(
            st.tuples(mostly, seldom, st.none() | st.tuples(some, kinds)),
            min_size=3,
            max_size=8,
        ),
    )
    def submit_some_held(
        self, plan: list[tuple[bool, bool, tuple[int, DependencyKind] | None]]
    ) -> MultipleResults[int]:
        made: list[int] = []
        for in_line, asks, need in plan:
            ids = list(self.model.jobs)
            needs = [(ids[-1 - need[0] % len(ids)], need[1])] if ids and need else []
            made.append(self._submit_held(needs, in_line=in_line, asks=asks))
        return multiple(*made)

    @rule(
        target=QueueMachine.jobs,
        needs=st.lists(st.tuples(QueueMachine.jobs, kinds), max_size=2),
        in_line=st.booleans(),
        asks=seldom,
        max_failures=st.sampled_from([0, 1]),
        delay_s=st.sampled_from([0, 0, 15]),
        lost=lost,
    )
    def submit_held(
        self,
        *,
        needs: list[tuple[int, DependencyKind]],
        in_line: bool,
        asks: bool,
        max_failures: int,
        delay_s: int,
        lost: int,
    ) -> int:
        return self._submit_held(
            # A job can be named only once.
            list(dict(needs).items()),
            in_line=in_line,
            asks=asks,
            max_failures=max_failures,
            delay_s=delay_s,
            lost=lost,
        )

    @precondition(lambda self: self._begun())
    @rule(target=QueueMachine.jobs, which=some, kind=kinds, lost=lost)
    def submit_one_that_needs_a_job_that_began(
        self, which: int, kind: DependencyKind, *, lost: int
    ) -> int:
        begun = self._begun()
        needs = [(begun[which % len(begun)].id, kind)]
        return self._submit_held(needs, in_line=False, asks=False, lost=lost)

    def _submit_held(
        self,
        needs: list[tuple[int, DependencyKind]],
        *,
        in_line: bool,
        asks: bool,
        max_failures: int = 0,
        delay_s: int = 0,
        lost: int = 0,
    ) -> int:
        budgets = {"max_failures": max_failures, "max_losses": 1, "max_preemptions": 50}
        wanted = spec(
            **budgets,
            backoff_s=0,
            delay_s=delay_s,
            **({"sweep": SWEEP, "parallel": OWN_CAP} if in_line else {}),
            **{kind: [job for job, one in needs if one is kind] for kind in DependencyKind},
        )
        with self._asking(asks):
            (job_id,) = self._call("submit", min(lost, 1), lambda: self.rig.queue.submit([wanted]))
        job = Job(job_id, 0, None, dict(zip(CHARGED, budgets.values(), strict=True)), 0, None)
        job.run_at = self.model.now + timedelta(seconds=delay_s) if delay_s else None
        job.needs = [Need(other, kind) for other, kind in needs]
        job.parallel, job.asks, job.state = OWN_CAP if in_line else None, asks, State.HELD
        self.model.settle()
        self.model.jobs[job_id] = job
        self.told["submitted"] += 1
        self.told["asked for approval"] += asks
        return job_id

    @precondition(lambda self: self._failed())
    @rule(number=some, lost=lost)
    def retry_what_needs_an_approval(self, number: int, *, lost: int) -> None:
        with self._asking(asks=True):
            self.retry_what_failed(number, lost=lost)
        self.told["asked for approval"] += 1

    @rule(job_id=QueueMachine.jobs, lost=lost)
    def approve(self, job_id: int, *, lost: int) -> None:
        acts = JobActs(self.rig.database, owner=None, actor="user:root")
        counts = self._call("approve", lost, lambda: acts.approve([job_id]))
        if self.model.approve(self.model.jobs[job_id]):
            self.approved.add(job_id)
            self.told["approved"] += 1
        approved = job_id in self.approved
        assert (counts.approved, counts.unasked, counts.absent) == (approved, not approved, 0)

    @precondition(lambda self: any(job.asks for job in self.model.at(State.HELD)))
    @rule(number=some, lost=lost)
    def approve_one_that_waits(self, number: int, *, lost: int) -> None:
        waiting = [job for job in self.model.at(State.HELD) if job.asks]
        self.approve(waiting[number % len(waiting)].id, lost=lost)

    @rule(
        job_id=QueueMachine.jobs,
        priority=st.integers(-1, 1),
        backoff_s=st.sampled_from([0, 20]),
        lost=lost,
    )
    def change(self, job_id: int, priority: int, backoff_s: int, *, lost: int) -> None:
        job = self.model.jobs[job_id]
        self.model.settle()
        waits = job.state in {State.READY, State.SCHEDULED, State.HELD}
        differs = (job.nice, job.backoff_s) != (-priority, backoff_s)
        fields = {"priority": priority, "backoff_s": backoff_s}
        refused = pytest.raises(NotChangeable) if differs and not waits else nullcontext()
        with refused:
            change = Change(self.rig.database, "user:ann", job_id, fields)
            self._call("change", lost if differs and waits else 0, change.make)
        if waits:
            job.nice, job.backoff_s = -priority, backoff_s
            self.told["changed"] += differs

    @rule(cap=st.integers(1, 4), lost=lost)
    def change_the_cap(self, cap: int, *, lost: int) -> None:
        sweeps = Benchmarks(self.rig.database, owner="ann", actor="user:ann")
        change = partial(sweeps.set_parallel, SWEEP, cap)
        if not any(job.parallel for job in self.model.jobs.values()):
            with pytest.raises(SweepUnknown):
                self._call("set_parallel", min(lost, 1), change)
            return
        self._call("set_parallel", lost, change)
        self.told["sweep parallel set"] += self.model.cap != cap
        self.model.cap = cap

    @precondition(lambda self: len(self.model.in_line()) > 1)
    @rule(cap=st.sampled_from([1, 4]), lost=lost)
    def change_the_cap_while_several_wait(self, cap: int, *, lost: int) -> None:
        self.change_the_cap(cap, lost=lost)

    @precondition(lambda self: self._awaited())
    @rule(
        target=QueueMachine.fences,
        plan=st.lists(st.tuples(some, workers, ends, small, lost), min_size=1, max_size=4),
        empty=st.booleans(),
    )
    def finish_what_others_wait_for(
        self, plan: list[tuple[int, int, Reason, int, int]], *, empty: bool
    ) -> MultipleResults[Fence]:
        """Of an `empty` queue, a claim can be granted only what its end makes ready."""
        found: list[Fence] = []
        for which, number, reason, count, answers_lost in plan:
            if not (awaited := self._awaited()):
                break
            if empty:
                found += fences_in(self.claim(SERVES_ALL, len(self.model.jobs)))
            fence = awaited[which % len(awaited)].fence
            assert fence is not None
            found += fences_in(
                self.finish_and_claim(number, fence, [], [reason], count, lost=answers_lost)
            )
        return multiple(*found)

    @invariant()
    def what_a_job_needs_is_settled_as_the_model_has_it(self) -> None:
        self.model.settle()
        rows = self.rig.rows("SELECT job_id, needs_id, kind, met FROM dependency")
        assert {tuple(row.values()) for row in rows} == {
            (job.id, need.job_id, need.kind, need.met)
            for job in self.model.jobs.values()
            for need in job.needs
        }

    @invariant()
    def only_jobs_that_are_out_have_turns_and_no_more_than_the_cap(self) -> None:
        out = {row["job_id"] for row in self.rig.rows(OUT)}
        capped = {job.id for job in self.model.jobs.values() if job.parallel}
        turns = self.rig.rows("SELECT job_id, line FROM turn")
        assert {(row["job_id"], row["line"]) for row in turns} == {(i, LINE) for i in out & capped}
        # A cap that was lowered leaves the turns that were given.
        assert len(turns) <= max(self.turns, self.model.cap or OWN_CAP)
        self.turns = len(turns)

    def _awaited(self) -> list[Job]:
        """Return the running jobs that others need, or that have a turn."""
        unmet = {n.job_id for job in self.model.at(State.HELD) for n in job.needs if n.met is None}
        return [job for job in self.model.at(State.RUNNING) if job.turn or job.id in unmet]

    def _begun(self) -> list[Job]:
        """Return the jobs that began once and did not end."""
        return [
            job
            for job in self.model.jobs.values()
            if (job.begun or job.started) and not job.state.terminal
        ]

    @contextmanager
    def _asking(self, asks: bool) -> Iterator[None]:  # noqa: FBT001 - what it is called for
        """Have every request wait for approval: no worker has a price."""
        if asks:
            self.rig.rows("UPDATE owner_quota SET approve_cost = 0")
            self.model.asking = True
        yield
        if asks:
            self.rig.rows("UPDATE owner_quota SET approve_cost = NULL")
            self.model.asking = False


def fences_in(result: Iterable[Fence] | Fence) -> Iterable[Fence]:
    """Return the fences that another rule returned, one or several."""
    return [result] if isinstance(result, Fence) else result
