"""The state machine: verbs in any order, stale writers, lost answers; and the invariants."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.attempt_records import (
    ArtifactRecord,
    CheckpointRecord,
    LogChunkRecord,
    MetricRecord,
)
from forge_schema.model.job import IdempotencyConflict
from forge_schema.model.lease import End, Ended, Fence, Grant
from forge_schema.model.states import (
    ATTEMPT_REASONS,
    Asked,
    Phase,
    Reason,
    Standing,
    State,
    WorkerStatus,
)
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.queue import NotRetryable, WorkerUnknown
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from support.database.clock import START
from support.queue import queue_tables
from support.queue.queue_model import CHARGED, Job, Model, as_modelled
from support.queue.queue_tables import RECORDS, Row, as_stored, empty, fence, histories, places
from support.queue.rig import spec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from support.queue.rig import Rig, Worker

T = TypeVar("T")

SHA = "ab" * 32
REMEMBERS = 2  # the worker that keeps its lane cache, including watermarks
small = st.integers(0, 2)
some = st.integers(0, 99)
workers = st.integers(0, 2)
# Usually the answer arrives. After one loss the verb retries by itself; after this many, its caller
# sees that the database is unreachable, although everything was committed.
GIVES_UP = 4
lost = st.sampled_from([0, 0, 0, 0, 1, 1, GIVES_UP])


class QueueMachine(RuleBasedStateMachine):
    """Drives a real queue and a model of it, and compares them after every step."""

    rig: Rig
    team: Sequence[Worker]
    jobs: Bundle[int] = Bundle("jobs")
    fences: Bundle[Fence] = Bundle("fences")

    def __init__(self) -> None:
        super().__init__()
        empty(self.rig)
        self.rig.clock.set(START)
        self.model = Model(START, self.rig.queue.ttl)
        self.keys: dict[str, tuple[str, int]] = {}
        self.told = {"submitted": 0, "promoted": 0, "retried": 0, "cancelled": 0}
        worker = self.team[REMEMBERS]
        worker.lanes = Lanes(self.rig.database, worker.id, refresh_s=3600)

    def _call(self, statement: str, lost: int, verb: Callable[[], T]) -> T:
        """Call a verb whose statement loses this many answers; call it again if it gave up."""
        self.rig.database.lose(*[statement] * lost)
        if lost >= GIVES_UP:
            with pytest.raises(DatabaseUnreachable):
                verb()
        answer = verb()
        assert not self.rig.database.losing
        return answer

    def _running(self, number: int) -> Job:
        running = self.model.at(State.RUNNING)
        return running[number % len(running)]

    def _failed(self) -> list[Job]:
        return self.model.at(State.FAILED) + self.model.at(State.DEAD)

    # User actions.

    @initialize(
        target=jobs,
        count=st.integers(2, 14),
        backoff_s=st.sampled_from([0, 20]),
        timeout_s=st.sampled_from([None, 30]),
    )
    def submit_some(
        self, count: int, backoff_s: int, timeout_s: int | None
    ) -> MultipleResults[int]:
        wanted = spec(max_failures=1, max_losses=1, backoff_s=backoff_s, timeout_s=timeout_s)
        ids = self.rig.queue.submit([wanted] * count)
        limits = dict(zip(CHARGED, (1, 1, 50), strict=True))
        for job_id in ids:
            self.model.jobs[job_id] = Job(job_id, 0, None, limits, backoff_s, timeout_s)
        self.told["submitted"] += count
        return multiple(*ids)

    @rule(
        target=jobs,
        priority=st.integers(-1, 1),
        zone=st.sampled_from([None, "eu"]),
        limits=st.tuples(small, small, small),
        backoff_s=st.sampled_from([0, 20]),
        timeout_s=st.sampled_from([None, 30]),
        delay_s=st.sampled_from([0, 0, 15]),
        key=st.sampled_from([None, None, None, "k1", "k2"]),
        lost=lost,
    )
    def submit(
        self,
        *,
        priority: int,
        zone: str | None,
        limits: tuple[int, int, int],
        backoff_s: int,
        timeout_s: int | None,
        delay_s: int,
        key: str | None,
        lost: int,
    ) -> int | MultipleResults[int]:
        wanted = spec(
            priority=priority,
            labels={"zone": zone} if zone else {},
            **dict(zip(("max_failures", "max_losses", "max_preemptions"), limits, strict=True)),
            backoff_s=backoff_s,
            timeout_s=timeout_s,
            delay_s=delay_s,
            idempotency_key=key,
        )
        content, known = self.keys.get(key or "", (None, None))
        # Without a key, a client that gives up cannot learn whether the job was submitted.
        lost = lost if key else min(lost, 1)
        if content not in {None, wanted.content_digest()}:
            with pytest.raises(IdempotencyConflict):
                self._call("submit", min(lost, 1), lambda: self.rig.queue.submit([wanted]))
            return multiple()
        (job_id,) = self._call("submit", lost, lambda: self.rig.queue.submit([wanted]))
        if known is not None:
            assert job_id == known
            return multiple()
        if key:
            self.keys[key] = (wanted.content_digest(), job_id)
        job = Job(
            job_id, -priority, zone, dict(zip(CHARGED, limits, strict=True)), backoff_s, timeout_s
        )
        if delay_s:
            job.state, job.run_at = State.SCHEDULED, self.model.now + timedelta(seconds=delay_s)
        self.model.jobs[job_id] = job
        self.told["submitted"] += 1
        return job_id

    @rule(job_id=jobs, verb=st.sampled_from(["cancel", "preempt", "retry", "retry"]), lost=lost)
    def administer(self, job_id: int, verb: str, *, lost: int) -> None:
        {"cancel": self._cancel, "preempt": self._preempt, "retry": self._retry}[verb](
            job_id, lost=lost
        )

    @precondition(lambda self: self.model.at(State.RUNNING))
    @rule(number=some, verb=st.sampled_from(["cancel", "preempt"]), lost=lost)
    def ask_for_a_running_job(self, number: int, verb: str, *, lost: int) -> None:
        self.administer(self._running(number).id, verb, lost=lost)

    @precondition(lambda self: self._failed())
    @rule(number=some, lost=lost)
    def retry_what_failed(self, number: int, *, lost: int) -> None:
        failed = self._failed()
        self._retry(failed[number % len(failed)].id, lost=lost)

    def _cancel(self, job_id: int, *, lost: int) -> None:
        job = self.model.jobs[job_id]
        self.told["cancelled"] += job.state in {State.READY, State.SCHEDULED, State.HELD}
        state = self._call("cancel", lost, lambda: self.rig.queue.cancel(job_id))
        assert state == self.model.cancel(job)

    def _preempt(self, job_id: int, *, lost: int) -> None:
        job = self.model.jobs[job_id]
        heard = self._call("preempt", lost, lambda: self.rig.queue.preempt(job_id))
        assert heard == (job.state is State.RUNNING)
        if job.state is State.RUNNING:
            job.asked = job.asked or Asked.PREEMPTED

    def _retry(self, job_id: int, *, lost: int) -> None:
        if self.model.retry(self.model.jobs[job_id]):
            # After the client gave up, its repeat is another request, and the job is ready by then.
            refused = pytest.raises(NotRetryable) if lost >= GIVES_UP else nullcontext()
            with refused:
                self._call("retry", lost, lambda: self.rig.queue.retry(job_id))
            self.told["retried"] += 1
        else:
            with pytest.raises(NotRetryable):
                self._call("retry", min(lost, 1), lambda: self.rig.queue.retry(job_id))

    # Worker actions.

    @rule(target=fences, number=workers, count=st.integers(1, 3))
    def claim(self, number: int, count: int) -> MultipleResults[Fence]:
        wanted = self.model.claimable(self._zone(number))
        grants = self.team[number].claim(count)
        self._granted(number, wanted, count, [grant.fence for grant in grants])
        self._as_told(grants)
        return multiple(*[grant.fence for grant in grants])

    @precondition(lambda self: self.model.at(State.READY))
    @rule(target=fences, number=workers, count=st.sampled_from([1, 2, 3, 50]))
    def claim_what_is_ready(self, number: int, count: int) -> MultipleResults[Fence] | Fence:
        return self.claim(number, count)

    @precondition(lambda self: self.model.at(State.READY))
    @rule(target=fences, number=workers, count=st.integers(1, 2), again=st.booleans())
    def claim_and_lose_the_answer(
        self, number: int, count: int, *, again: bool
    ) -> MultipleResults[Fence]:
        wanted = self.model.claimable(self._zone(number))
        worker, nonce = self.team[number], uuid4()
        ask = partial(
            self.rig.queue.finish_and_claim, [], worker.lanes, worker.free, count=count, nonce=nonce
        )
        self.rig.database.lose("finish_and_claim")
        with pytest.raises(DatabaseUnreachable):
            ask()
        got = [grant.fence for grant in ask(repeated=True)[1]] if again else None
        self._granted(number, wanted, count, got)
        return multiple(*(got or []))

    @rule(
        target=fences,
        number=workers,
        first=fences,
        more=st.lists(fences, max_size=2),
        reasons=st.one_of(
            st.just([Reason.SUCCEEDED] * 3),
            st.lists(st.sampled_from(ATTEMPT_REASONS), min_size=3, max_size=3),
        ),
        count=st.integers(0, 2),
        lost=lost,
    )
    def finish_and_claim(
        self,
        number: int,
        first: Fence,
        more: list[Fence],
        reasons: list[Reason],
        count: int,
        *,
        lost: int,
    ) -> MultipleResults[Fence]:
        """End attempts and claim jobs in their place.

        Ends of several reasons have a statement of their own, so the claim sees what they make
        ready. Successes share the claim's statement, which does not see what they release: a worker
        gets that only by another look. It takes one if the first look found nothing and its
        watermarks may hide a job, and never if the answer to the first look was lost.
        """
        ends = [End(f, r) for f, r in zip(dict.fromkeys([first, *more]), reasons, strict=False)]
        worker, verb = self.team[number], self.rig.queue.finish_and_claim
        plain = all(end.reason is Reason.SUCCEEDED for end in ends)
        before = self.model.claimable(self._zone(number))
        live = {end.fence: self._end(end) for end in ends if self.model.held(end.fence)}
        after = self.model.claimable(self._zone(number))
        wanted = before if plain else after
        grants: list[Grant] = []
        # Without a claim, ends of other reasons are repeated like any finish.
        if lost and (count or plain):
            self.rig.database.lose("finish_and_claim")
            with pytest.raises(DatabaseUnreachable):
                verb(ends, worker.lanes, worker.free, count=count)
            self._granted(number, wanted, count, None)
            # By now, a job that came back may be running again.
            live = {}
            answers, _ = verb(ends, worker.lanes, worker.free, count=0)
        else:
            answers, grants = verb(ends, worker.lanes, worker.free, count=count)
            fences = [grant.fence for grant in grants]
            self._granted(number, wanted, count, fences, by_another_look=after)
        assert answers == [live.get(end.fence) or self._end(end) for end in ends]
        return multiple(*[grant.fence for grant in grants])

    @rule(
        first=fences,
        more=st.lists(fences, max_size=2),
        reasons=st.lists(st.sampled_from(ATTEMPT_REASONS), min_size=3, max_size=3),
        lost=lost,
    )
    def finish(self, first: Fence, more: list[Fence], reasons: list[Reason], *, lost: int) -> None:
        ends = [End(f, r) for f, r in zip(dict.fromkeys([first, *more]), reasons, strict=False)]
        live = {end.fence: self._end(end) for end in ends if self.model.held(end.fence)}
        answers = self._call("finish", lost, lambda: self.rig.queue.finish(ends))
        for answer, end in zip(answers, ends, strict=True):
            expected = live.get(end.fence) or self._end(end)
            # The answer has the state after the statement, which ended both leases of a job.
            state = self.model.jobs[answer.job_id].state if not live.get(end.fence) else None
            assert answer == expected
            assert state in {None, answer.state} or not answer.reason

    @precondition(lambda self: self.model.at(State.RUNNING))
    @rule(number=some, reason=st.sampled_from(ATTEMPT_REASONS), lost=lost)
    def finish_what_runs(self, number: int, reason: Reason, *, lost: int) -> None:
        fence = self._running(number).fence
        assert fence is not None
        self.finish(fence, [], [reason], lost=lost)

    @rule(fence=fences, reason=st.sampled_from([Reason.PREEMPTED, Reason.DRAINED]), lost=lost)
    def release(self, fence: Fence, reason: Reason, *, lost: int) -> None:
        ended = self._call("finish", lost, lambda: self.rig.queue.release(fence, reason))
        assert ended == self._end(End(fence, reason))

    @rule(number=workers, first=fences, more=st.lists(fences, max_size=3), lost=lost)
    def renew(self, number: int, first: Fence, more: list[Fence], *, lost: int) -> None:
        worker, listed = self.team[number], list(dict.fromkeys([first, *more]))
        answer = self._call("renew", lost, lambda: worker.renew_fences(listed))
        expected = {}
        for one in listed:
            job = self.model.held(one)
            mine = job is not None and job.worker == worker.id
            expected[one] = self.model.standing(one) if mine else Standing.LOST
            if mine and job is not None and job.expires_at is not None:
                job.expires_at = max(job.expires_at, self.model.now + self.model.ttl)
        assert answer.standings == expected

    @rule(number=workers, fence=fences)
    def renew_as_an_older_boot(self, number: int, fence: Fence) -> None:
        with pytest.raises(WorkerUnknown):
            self.rig.queue.renew(self.team[number].id, uuid4(), [fence], WorkerStatus.BUSY)

    @precondition(lambda self: self.model.at(State.RUNNING))
    @rule(number=some, lost=lost)
    def report_what_runs(self, number: int, *, lost: int) -> None:
        fence = self._running(number).fence
        assert fence is not None
        self.report(fence, Phase.RUNNING, lost=lost)

    @rule(fence=fences, phase=st.sampled_from(Phase), lost=lost)
    def report(self, fence: Fence, phase: Phase, *, lost: int) -> None:
        standing = self._call("report", lost, lambda: self.rig.queue.report(fence, phase))
        assert standing == self.model.standing(fence)
        job = self.model.held(fence)
        if job:
            job.phase = phase
            job.started = job.started or phase is Phase.RUNNING
        if job and job.timeout_s and phase is Phase.RUNNING and job.deadline_at is None:
            job.deadline_at = self.model.now + timedelta(seconds=job.timeout_s)

    @rule(fence=fences, number=small, lost=lost)
    def write_records(self, fence: Fence, number: int, *, lost: int) -> None:
        records, job = self.rig.records, self.model.held(fence)
        chunk, line = LogChunkRecord(number, "k", 0, 1, SHA), MetricRecord(number, None, {})
        checkpoint, artifact = (
            CheckpointRecord(number, "k", 1, 1),
            ArtifactRecord(f"p{number}", "k", 1, SHA),
        )
        writes = {
            "add_log_chunk": lambda: records.add_log_chunk(fence, chunk),
            "add_checkpoint": lambda: records.add_checkpoint(fence, checkpoint),
            "add_artifacts": lambda: records.add_artifacts(fence, [artifact]),
            "add_metrics": lambda: records.add_metrics(fence, [line]),
        }
        written = [self._call(name, lost, write) for name, write in writes.items()]
        assert written == [job is not None] * 4
        if job is not None:
            job.checkpoints.add((fence.token, number))

    @precondition(lambda self: self.model.at(State.RUNNING))
    @rule(number=some, wrong=st.sampled_from(["nonce", "token"]))
    def speak_with_a_wrong_fence(self, number: int, wrong: str) -> None:
        job = self._running(number)
        assert job.fence is not None
        by_token, by_nonce = replace(job.fence, token=0), replace(job.fence, nonce=uuid4())
        forged = by_nonce if wrong == "nonce" else by_token
        queue, worker = self.rig.queue, self.team[0]
        end = End(forged, Reason.SUCCEEDED)
        nothing = Ended(job.id, accepted=False)
        assert queue.finish([end]) == [nothing]
        assert queue.finish_and_claim([end], worker.lanes, worker.free, count=0)[0] == [nothing]
        assert queue.report(forged, Phase.FINISHING, progress=1.0) == Standing.LOST
        self.write_records(forged, 0, lost=0)
        assert worker.renew_fences([forged]).standings == {forged: Standing.LOST}

    # Invariants.

    @invariant()
    def every_job_is_in_one_place_as_the_model_has_it(self) -> None:
        found = places(self.rig)
        assert set(found) == set(self.model.jobs)
        self.model.settle()
        for job in self.model.jobs.values():
            self._learn_pause(job, found[job.id])
            assert as_stored(found[job.id]) == as_modelled(job)

    @invariant()
    def attempts_are_numbered_without_gaps_and_tokens_rise(self) -> None:
        found = histories(self.rig)
        for job in self.model.jobs.values():
            rows = found.pop(job.id, [])
            assert [row["attempt"] for row in rows] == list(range(1, len(rows) + 1))
            assert [(fence(row), row["reason"]) for row in rows] == [
                (ending.fence, ending.reason) for ending in job.history
            ]
            tokens = [granted.token for granted in job.granted]
            assert all(one < following for one, following in pairwise(tokens))
        assert not found

    @invariant()
    def an_accepted_result_is_that_of_the_last_lease_granted(self) -> None:
        for row in self.rig.rows("SELECT job_id, token, nonce, state FROM outcome"):
            job = self.model.jobs[row["job_id"]]
            if row["token"] is None:
                assert row["state"] == State.CANCELLED
            else:
                assert fence(row) == job.granted[-1]

    @invariant()
    def the_audit_trail_adds_up(self) -> None:
        rows = self.rig.rows("SELECT action, count(*) FROM audit GROUP BY action")
        counted = {row["action"]: row["count"] for row in rows}
        assert {action: counted.get(action, 0) for action in self.told} == self.told

    @invariant()
    def nothing_is_recorded_of_a_lease_that_was_never_granted(self) -> None:
        granted = {f.token for job in self.model.jobs.values() for f in job.granted}
        for table in RECORDS:
            rows = self.rig.rows(f"SELECT token FROM {table}")
            assert {row["token"] for row in rows} <= granted

    def _zone(self, number: int) -> str | None:
        return self.team[number].machine.labels.get("zone")

    def _end(self, end: End) -> Ended:
        return self.model.end(end.fence, end.reason)

    def _granted(
        self,
        number: int,
        wanted: list[Job],
        count: int,
        fences: list[Fence] | None,
        *,
        by_another_look: Sequence[Job] = (),
    ) -> None:
        """Compare new leases with those expected; `fences` are those that the worker received.

        Only a worker that keeps its lane cache may take another look.
        """
        wanted = queue_tables.not_avoiding(self.rig, self.team[number].id, wanted)
        held = {job.fence for job in self.model.jobs.values()}
        rows = [row for row in places(self.rig).values() if row["state"] == State.RUNNING]
        new = [f for row in rows if (f := fence(row)) is not None and f not in held]
        ids = sorted(f.job_id for f in new)
        if number == REMEMBERS:
            assert set(ids) <= {job.id for job in [*wanted, *by_another_look]}
            assert len(ids) <= count
            assert ids or not wanted or not count or fences is None
        else:
            assert ids == sorted(job.id for job in wanted[:count])
        if fences is not None:
            assert sorted(f.job_id for f in fences) == ids
            ranks = [(self.model.jobs[f.job_id].nice, f.job_id) for f in fences]
            assert ranks == sorted(ranks)
        for one in new:
            self.model.lease(self.team[number].id, self.model.jobs[one.job_id], one)

    def _as_told(self, grants: list[Grant]) -> None:
        for grant in grants:
            job = self.model.jobs[grant.fence.job_id]
            told = (grant.attempt, grant.failures, grant.losses, grant.preemptions)
            assert told == (job.attempt, *job.spends)

    def _learn_pause(self, job: Job, row: Row) -> None:
        """Copy the randomly drawn pause into the model; it must be within its bounds."""
        if job.state is not State.SCHEDULED or job.run_at is not None:
            return
        run_at: datetime = row["run_at"]
        failures, losses, _ = job.spends
        middle = min(job.backoff_s * 2 ** (failures + losses - 1), 86_400)
        assert 0.5 * middle <= (run_at - self.model.now).total_seconds() <= 1.5 * middle
        job.run_at = run_at
