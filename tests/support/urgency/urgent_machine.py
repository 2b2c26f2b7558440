"""The state machine with urgency, suspicion and budgets: who leaves, who rests, and who is held."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

from forge_schema.model.admin import OwnerSettings
from forge_schema.model.states import Asked, Phase, Reason, State
from forge_schema.queue.queue import Queue
from forge_schema.sweeper.tick import Tick
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from support.queue.queue_held import HeldMachine, fences_in
from support.queue.queue_machine import REMEMBERS, QueueMachine, lost, some
from support.queue.queue_model import CHARGED, Job
from support.queue.rig import spec

if TYPE_CHECKING:
    from forge_schema.model.lease import Fence
    from support.queue.queue_tables import Row

FIRST = 50  # the priority of jobs that are claimed before all others
WAITED_S = 6
TRUSTED = "UPDATE worker SET suspected_for = NULL, judged_at = NULL, rests = 0, rests_until = NULL"
RESTING = "SELECT id FROM worker WHERE forge_rests(worker)"
# What each running job would lose by leaving now.
LOST = """
    SELECT lease.job_id, extract(EPOCH FROM forge_now() - greatest(
        coalesce(lease.started_at, forge_now()),
        (SELECT max(created_at) FROM checkpoint WHERE checkpoint.job_id = lease.job_id)
    )) AS lost_s
    FROM lease
"""
DISPLACED = """
    SELECT
        id, job_id, (detail ->> 'by')::bigint AS by, (detail ->> 'own')::integer AS own,
        (detail ->> 'priority')::integer AS priority, (detail ->> 'attempt')::integer AS attempt
    FROM event WHERE action = 'displaced' ORDER BY id
"""


class UrgentMachine(HeldMachine):
    """A job that makes room loses no retry, at most half of a fleet rests, what is spent holds."""

    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.rig.rows(TRUSTED)
        self._keep(preemption="never", max_jobs=None)
        self._budget(None, "hold")
        self.displaced: set[int] = set()
        self.leaves_for: dict[Fence, int] = {}

    # Urgency.

    @precondition(lambda self: self.model.at(State.RUNNING) and not self.model.held_back)
    @rule(
        target=QueueMachine.jobs,
        priority=st.sampled_from([0, 1, 2, 2, 3]),
        most=st.integers(1, 3),
        age_s=st.sampled_from([0, 0, 60]),
        ends=st.booleans(),
        lost=lost,
    )
    def submit_an_urgent_job(
        self, *, priority: int, most: int, age_s: int, ends: bool, lost: int
    ) -> int:
        """All slots of the queue are taken, so that another job has to leave."""
        running = self.model.at(State.RUNNING)
        self._all_come()
        self._keep(
            preemption="higher-priority",
            preempts_after_s=age_s,
            most_preempted=most,
            max_jobs=len(running),
        )
        urgent = self._submitted("ann", priority)
        self.advance(WAITED_S)
        expected = self._leaving(running, most, age_s)
        self._call("displace", lost, self.rig.tick.displace)
        self._leave(expected)
        if ends:
            for job in (self.model.jobs[job_id] for job_id in expected):
                assert job.fence is not None
                before = job.spends
                self.finish(job.fence, [], [Reason.PREEMPTED], lost=0)
                assert (job.state, job.spends) == (State.READY, before)
                self._claim_what_is_kept(expected)
        self._keep(preemption="never", max_jobs=None)
        return urgent

    def _claim_what_is_kept(self, leaving: dict[int, int]) -> None:
        """Only jobs as urgent as the last one that others leave for take the slots."""
        last = max(self.model.jobs[job_id].nice for job_id in leaving.values())
        wanted = [job for job in self.model.claimable(self._zone(0)) if job.nice <= last]
        grants = self.team[0].claim(1)
        self._granted(0, wanted, 1, [grant.fence for grant in grants])

    def _leaving(self, running: list[Job], most: int, age_s: int) -> dict[int, int]:
        """Return the jobs that should be asked to leave now, each with the one that it is for."""
        lost_s = {row["job_id"]: row["lost_s"] for row in self.rig.rows(LOST)}
        stay = {job.id: job for job in running if job.asked is None}
        leaving = sum(job.asked is Asked.PREEMPTED for job in running)
        highest = max((job.nice for job in stay.values()), default=0)
        expected: dict[int, int] = {}
        for head in self._heads(highest):
            waits_for = {
                job.id for job in running if job.fence and self.leaves_for.get(job.fence) == head.id
            }
            if leaving >= most or waits_for:
                continue
            able = [job for job in stay.values() if job.nice > head.nice and self._may(job, age_s)]
            # Every worker has room for any number of jobs, and only the first is in the zone.
            there = {w.id for w in self.team if head.zone is None or w is self.team[0]}
            fitting = [job for job in able if job.worker in there - self._resting()]
            if fitting:
                victim = min(fitting, key=lambda job: (lost_s[job.id], job.id))
                expected[stay.pop(victim.id).id] = head.id
                leaving += 1
        return expected

    def _heads(self, highest: int) -> list[Job]:
        """Return the first job of each lane that may displace others, the most urgent one first."""
        found: dict[str | None, Job] = {}
        for job in sorted(self.model.at(State.READY), key=lambda job: (job.nice, job.id)):
            if job.id not in self.displaced:
                found.setdefault(job.zone, job)
        heads = [job for job in found.values() if job.nice < highest]
        return sorted(heads, key=lambda job: (job.nice, job.id))

    def _may(self, job: Job, age_s: int) -> bool:
        assert job.claimed_at is not None
        old = (self.model.now - job.claimed_at).total_seconds() >= age_s
        return old and job.phase in {Phase.CLAIMED, Phase.PREPARING, Phase.RUNNING}

    def _leave(self, expected: dict[int, int]) -> None:
        for job_id, urgent in expected.items():
            job = self.model.jobs[job_id]
            assert job.fence is not None
            job.asked, job.free = Asked.PREEMPTED, True
            self.displaced.add(job_id)
            self.leaves_for[job.fence] = urgent
            self.seen["displaced"] += 1

    @invariant()
    def jobs_make_room_once_an_attempt_and_never_in_a_circle(self) -> None:
        rows = self.rig.rows(DISPLACED)
        assert len({(row["job_id"], row["attempt"]) for row in rows}) == len(rows)
        assert {row["job_id"] for row in rows} == self.displaced
        before: set[int] = set()
        for row in rows:
            assert row["own"] < row["priority"]
            assert row["by"] not in before
            before.add(row["job_id"])

    # Suspicion.

    @precondition(lambda self: not self.model.held_back)
    @rule(number=st.integers(0, REMEMBERS - 1), tries=st.sampled_from([None, None, False, True]))
    def fail_on_a_worker_and_succeed_on_another(self, number: int, *, tries: bool | None) -> None:
        """Jobs of two owners do; once the worker has rested, it may try another one."""
        self._all_come()
        resting = self._resting()
        other = REMEMBERS - 1 - number
        if self.team[number].id in resting or self.team[other].id in resting:
            return
        for owner in ("ann", "bob"):
            job_id = self._submitted(owner, FIRST)
            self._run_first(number, job_id, Reason.EXIT_CODE)
            self._run_first(other, job_id, Reason.SUCCEEDED)
        self._judge()
        suspected = self._worker(number)
        self.seen["suspected"] += suspected["suspected_for"] is not None
        if suspected["suspected_for"] is None or tries is None:
            return
        assert self.team[number].id in self._resting()
        self.advance(60 * 2 ** suspected["rests"])
        self._all_come()
        job_id = self._submitted("bob", FIRST)
        self._run_first(number, job_id, Reason.SUCCEEDED if tries else Reason.EXIT_CODE)
        if not tries:
            self._run_first(other, job_id, Reason.SUCCEEDED)
        self._judge()
        self.seen["trusted"] += tries
        after = self._worker(number)
        assert (after["suspected_for"] is None) == tries
        assert after["rests"] == (0 if tries else suspected["rests"] + 1)

    def _run_first(self, number: int, job_id: int, reason: Reason) -> None:
        grants = self.team[number].claim(1)
        assert [grant.job_id for grant in grants] == [job_id]
        self._granted(number, self.model.claimable(self._zone(number)), 1, [grants[0].fence])
        self.finish(grants[0].fence, [], [reason], lost=0)

    def _judge(self) -> None:
        Tick(Queue(self.rig.database, actor="sweeper")).suspect()

    def _resting(self) -> set[int]:
        return {row["id"] for row in self.rig.rows(RESTING)}

    def _worker(self, number: int) -> Row:
        return self.rig.row("SELECT * FROM worker WHERE id = %s", self.team[number].id)

    @invariant()
    def at_most_half_of_the_fleet_rests(self) -> None:
        assert len(self._resting()) <= len(self.team) // 2

    # Budgets.

    @precondition(lambda self: not self.model.held_back)
    @rule(when_spent=st.sampled_from(["warn", "hold", "preempt"]), lost=lost)
    def spend_the_budget(self, when_spent: str, *, lost: int) -> None:
        self._budget(0, when_spent)
        self.model.held_back = when_spent != "warn"
        running = [job for job in self.model.at(State.RUNNING) if job.asked is None]
        leaving = running if when_spent == "preempt" else []
        self._call("preempt", lost if leaving else 0, self.rig.tick.hold_to_budgets)
        for job in leaving:
            job.asked, job.free = Asked.PREEMPTED, True
        self.seen["held back"] += self.model.held_back

    @precondition(lambda self: self.model.held_back)
    @rule()
    def renew_the_budget(self) -> None:
        self._budget(None, "hold")
        self.model.held_back = False

    @precondition(lambda self: self.model.held_back and self.model.at(State.RUNNING))
    @rule(number=some)
    def leave_for_the_budget(self, number: int) -> None:
        """A job that was asked to leave is queued, and stays there, at no retry."""
        job = self._running(number)
        if job.asked is not Asked.PREEMPTED or not job.free or job.fence is None:
            return
        before = job.spends
        self.finish(job.fence, [], [Reason.PREEMPTED], lost=0)
        assert (job.state, job.spends) == (State.READY, before)
        assert not list(fences_in(self.claim(0, 50)))

    def _budget(self, gpu_hours: float | None, when_spent: Any) -> None:  # noqa: ANN401  a literal
        self.rig.admin.limit_owner(
            "ann", OwnerSettings(gpu_hours_per_month=gpu_hours, when_spent=when_spent)
        )

    # For all of them.

    def _all_come(self) -> None:
        """Have all workers be there: those that are silent for long count as offline."""
        for worker in self.team:
            worker.renew()

    def _submitted(self, owner: str, priority: int) -> int:
        wanted = spec(owner=owner, priority=priority, max_failures=1, max_losses=1, backoff_s=0)
        (job_id,) = self.rig.queue.submit([wanted])
        limits = dict(zip(CHARGED, (1, 1, 50), strict=True))
        self.model.jobs[job_id] = Job(job_id, -priority, None, limits, 0, None)
        self.told["submitted"] += 1
        return job_id

    def _keep(self, **settings: bool | int | str | None) -> None:
        self.rig.admin.set_queue("default", settings)
