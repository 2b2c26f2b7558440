"""Racers: workers without machines that use every verb of the queue at the same time."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from chaos.clients.job_mix import LIMITED_OWNER, LIMITED_QUEUE, URGENT_QUEUE
from chaos.dice import dice_of
from forge_schema.database.pool import Database
from forge_schema.model.lease import End, Fence
from forge_schema.model.states import Reason, Standing, State, WorkerStatus
from forge_schema.model.worker import Capacity, Gpu, Machine
from forge_schema.queue.cancel_retry import JobActs
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.queue import NotRetryable, Queue
from forge_schema.queue.registry import Registry
from forge_schema.read.jobs import Jobs
from forge_schema.sweeper.tick import Tick
from support.queue.rig import spec

if TYPE_CHECKING:
    from random import Random

    from chaos.clients.limits import Changing
    from chaos.evidence.history import History

TTL, EVERY = timedelta(seconds=0.3), timedelta(seconds=0.05)
ROOM = Capacity(100, 1000, 1000, 1, gpus_in_all=4)
GPUS = [Gpu(name="NVIDIA H100", uuid=f"GPU-{n}", vram_mb=81920) for n in range(4)]
BATCH, MOST_STATUSES = 4, 1000
OWNERS, SWEEPS, AT_ONCE = ("ann", LIMITED_OWNER), ("a", "b"), 2
# All jobs of this owner wait for approval.
ASKING_OWNER = "kim"
LONGER = """
    UPDATE ready SET ready_at = ready_at - interval '6 seconds' WHERE ctid IN (
        SELECT ctid FROM ready
        WHERE attempt = 0 AND (nice < 0 OR forge_is_guaranteed(lane_id))
        LIMIT 5 FOR UPDATE SKIP LOCKED
    )
"""
REASONS = (Reason.EXIT_CODE, Reason.PREEMPTED, Reason.DRAINED, Reason.OOM, Reason.START_FAILED)
# How often each verb is used, against the others.
VERBS = {"submit": 2, "claim": 8, "succeed": 4, "swap": 4, "end": 3, "renew": 8, "vanish": 2}
VERBS |= {"wake": 1, "repeat": 2, "cancel": 1, "preempt": 1, "retry": 3, "approve": 2}
VERBS |= {"displace": 2, "keep_to_budgets": 1}
VERBS_AT_THE_END = {"claim": 4, "succeed": 4, "swap": 2, "renew": 4, "wake": 1, "approve": 1}


@dataclass
class Course:
    """What the racers share; `total` is how many jobs there will be, in all."""

    url: str
    seed: int
    total: int
    history: History
    limits: Changing
    racing: int = 0
    jobs: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    done: threading.Event = field(default_factory=threading.Event)
    _taken: int = 0
    _open: set[int] = field(default_factory=set)

    def numbers(self, count: int) -> range:
        """Return the numbers of the next jobs to submit, fewer than `count` at the end."""
        with self.lock:
            first, self._taken = self._taken, min(self.total, self._taken + count)
            return range(first, self._taken)

    def submitted(self, job_ids: list[int]) -> None:
        with self.lock:
            self.jobs += job_ids
            self._open.update(job_ids)

    def retried(self, job_id: int) -> None:
        with self.lock:
            self._open.add(job_id)

    def watch(self) -> None:
        """Return when every job has ended, and nobody can retry one any more."""
        with Database(self.url) as database:
            jobs = Jobs(database)
            while (self.racing or self._open) and not self.done.wait(0.05):
                with self.lock:
                    asked = sorted(self._open)[:MOST_STATUSES]
                rows = jobs.statuses(asked)
                ended = {row["job_id"] for row in rows if State(row["state"]).terminal}
                if not self.racing:
                    self._open -= ended
        self.done.set()

    def limit(self) -> None:
        """Change limits while jobs are submitted; not later, since each change also mends slots."""
        while self.racing and not self.done.wait(0.2):
            self.limits.change()
        self.limits.restore()

    def sweep(self) -> None:
        with Database(f"{self.url}&application_name=sweeper") as database:
            tick = Tick(Queue(database, actor="sweeper", ttl=TTL), every=EVERY)
            while not self.done.wait(EVERY.total_seconds()):
                tick.run()


class Racer:
    """A worker that does what its dice say; once all is submitted, it only brings jobs home."""

    def __init__(self, course: Course, name: str) -> None:
        self._course = course
        self._dice: Random = dice_of(course.seed, name)
        self._stack = ExitStack()
        url = f"{course.url}&application_name={name}"
        self._database = self._stack.enter_context(Database(url))
        self._machine = Machine(uuid4(), 100, 1000, 1000, gpus=GPUS)
        registry = Registry(self._database, actor=f"worker:{name}")
        self._id = registry.register(name, self._machine)
        self._stack.callback(registry.disconnect, self._id, self._machine.boot_id)
        self._queue = Queue(self._database, actor=f"worker:{self._id}", ttl=TTL)
        self._tick = Tick(self._queue)
        self._lanes = Lanes(self._database, self._id, refresh_s=0.1)
        self._held: list[Fence] = []
        self._forgotten: list[Fence] = []
        self._said: list[End] = []
        course.racing += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def race(self) -> None:
        """Use every verb until all jobs are submitted, then end what is left.

        A first error ends the race for all.
        """
        try:
            while len(self._course.jobs) < self._course.total and not self._course.done.is_set():
                self._do_one_of(VERBS)
            with self._course.lock:
                self._course.racing -= 1
            while not self._course.done.is_set():
                self._do_one_of(VERBS_AT_THE_END)
        except BaseException:
            self._course.done.set()
            raise

    def _do_one_of(self, verbs: dict[str, int]) -> None:
        (verb,) = self._dice.choices(list(verbs), list(verbs.values()))
        getattr(self, verb)()

    def submit(self) -> None:
        dice = self._dice
        numbers = self._course.numbers(dice.randint(1, BATCH))
        specs = [
            spec(
                queue=dice.choice(["default", LIMITED_QUEUE, URGENT_QUEUE, URGENT_QUEUE]),
                priority=dice.choice([0, 0, 5]),
                gpus=dice.choice([0, 0, 1]),
                delay_s=dice.choice([0, 0, 0, 0.1]),
                max_failures=dice.randint(0, 2),
                backoff_s=1,
                idempotency_key=f"race-{number}",
                **{"owner": dice.choice([*OWNERS, ASKING_OWNER]), **self._waits()},
            )
            for number in numbers
        ]
        if not specs:
            return
        ids = self._queue.submit(specs, any_owner=True)
        if dice.random() < 0.3:  # as if the answer had been lost
            assert self._queue.submit(specs, any_owner=True) == ids
        for job_id, one in zip(ids, specs, strict=True):
            self._course.history.note(
                "submitted", job_id=job_id, key=one.idempotency_key, writes=[]
            )
        self._course.submitted(ids)

    def _waits(self) -> dict[str, Any]:
        """Return what a job waits for, if anything: another job, or its turn in a sweep."""
        kind = self._dice.choice([None, None, None, "parallel", "after", "after_ok", "after_any"])
        if kind == "parallel":
            return {"sweep": self._dice.choice(SWEEPS), "parallel": AT_ONCE}
        return {kind: self._any_job()} if kind else {}

    def claim(self) -> None:
        count = self._dice.randint(1, BATCH)
        self._held += [grant.fence for grant in self._queue.claim(self._lanes, ROOM, count=count)]

    def succeed(self) -> None:
        self._say([_success(fence) for fence in self._some(self._held)])

    def swap(self) -> None:
        """Report successes and claim in their place."""
        self._swap(self._some(self._held))

    def end(self) -> None:
        """End leases in other ways than by success."""
        reasons = {fence: self._dice.choice(REASONS) for fence in self._some(self._held)}
        self._say([End(fence, reason, 1, "no luck") for fence, reason in reasons.items()])

    def renew(self) -> None:
        boot = self._machine.boot_id
        found = self._queue.renew(self._id, boot, self._held, WorkerStatus.BUSY).standings
        self._held = [f for f in self._held if found.get(f, Standing.LOST) is not Standing.LOST]

    def vanish(self) -> None:
        """Forget leases, as if the machine was lost: they run out."""
        self._forgotten += self._some(self._held)

    def wake(self) -> None:
        """Report success for forgotten leases, whether or not they ran out, and not only once."""
        ended = self._dice.sample(self._forgotten, min(len(self._forgotten), BATCH))
        if self._dice.random() < 0.5:
            self._swap(ended)
        else:
            self._say([_success(fence) for fence in ended])

    def repeat(self) -> None:
        """Say again what was said, as if the answer had been lost."""
        if self._said:
            self._queue.finish([self._dice.choice(self._said)])

    def cancel(self) -> None:
        for job_id in self._any_job():
            state = self._queue.cancel(job_id)
            self._course.history.note("cancelled", job_id=job_id, state=state.value)

    def preempt(self) -> None:
        for job_id in self._any_job():
            self._queue.preempt(job_id)

    def displace(self) -> None:
        """Have jobs leave, as if others had waited for a while."""
        with self._database.transaction() as connection:
            connection.execute(LONGER)
        self._tick.displace()

    def keep_to_budgets(self) -> None:
        self._tick.hold_to_budgets()

    def retry(self) -> None:
        for job_id in self._any_job():
            with suppress(NotRetryable):
                self._queue.retry(job_id)
                self._course.retried(job_id)

    def approve(self) -> None:
        waiting = self._database.rows("approvals", owner=None, sweep=None, after=0, count=BATCH)
        found = [row["job_id"] for row in waiting]
        acts = JobActs(self._database, owner=None, actor="user:root")
        acts.approve([*found, *self._any_job()])

    def _any_job(self) -> list[int]:
        """Return one job, or none if there is none yet."""
        jobs = self._course.jobs
        return [self._dice.choice(jobs)] if jobs else []

    def _some(self, fences: list[Fence]) -> list[Fence]:
        """Take up to a batch of leases away from a list."""
        count = min(len(fences), self._dice.randint(1, BATCH))
        return [fences.pop(self._dice.randrange(len(fences))) for _ in range(count)]

    def _swap(self, fences: list[Fence]) -> None:
        ends = [_success(fence) for fence in fences]
        self._said += ends
        grants = self._queue.finish_and_claim(ends, self._lanes, ROOM, count=BATCH)[1]
        self._held += [grant.fence for grant in grants]

    def _say(self, ends: list[End]) -> None:
        self._said += ends
        self._queue.finish(ends)


def _success(fence: Fence) -> End:
    return End(fence, Reason.SUCCEEDED, exit_code=0)
