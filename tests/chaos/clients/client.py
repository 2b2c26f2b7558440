"""The clients of a run: they submit, resubmit, cancel, preempt, grow, schedule, and read states."""

from __future__ import annotations

import heapq
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import psycopg
from chaos.clients.cron import ChangingSchedules
from chaos.clients.job_mix import Plan, plan
from chaos.clients.limits import Changing
from forge_schema.database.pool import Database
from forge_schema.model.errors import ForgeError
from forge_schema.model.job import IdempotencyConflict, JobUnknown
from forge_schema.model.spec import JobSpec
from forge_schema.model.states import State
from forge_schema.queue.queue import Queue
from forge_schema.read.jobs import Jobs
from psycopg_pool import PoolTimeout

if TYPE_CHECKING:
    from chaos.clients.over_http import HttpSubmitter
    from chaos.evidence.history import History
    from chaos.options import Options

T = TypeVar("T")
Submit = Callable[[Sequence[JobSpec]], list[int]]

ACTORS = 2
LOOK_S = 1.0
CHANGE_S = 4.0
AGAIN_S = 0.5
# A sweeper would wait for minutes, and no job lasts that long.
GROWTH: dict[str, Any] = {
    "computed": timedelta(seconds=3),
    "waited": timedelta(seconds=1),
    "turn": timedelta(seconds=15),
    "actor": "user:chaos",
}


@dataclass
class Clients:
    """All clients of a run, one thread each; acknowledgements to them are in the history.

    `bundle` is a stored project, `containers` whether some jobs run in containers, `data` the
    bucket of what some read.
    """

    options: Options
    history: History
    database: Database
    bundle: str
    containers: bool
    data: str
    over_http: HttpSubmitter
    open_jobs: set[int] = field(default_factory=set)
    states: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    submitted: int = 0
    _next: int = 0
    _acts: list[tuple[float, int, str, Plan, int]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _scheduled_all: threading.Event = field(default_factory=threading.Event)
    _no_more: threading.Event = field(default_factory=threading.Event)
    _ending: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = Queue(self.database, actor="user:chaos")
        # A job may wait for another owner's.
        self._submit = partial(self.queue.submit, any_owner=True)
        self.jobs = Jobs(self.database)
        self._limits = Changing(self.options.seed, self.history, self.database)
        self._schedules = ChangingSchedules(self.options.seed, self.history, self.database)
        self._began = monotonic()

    def start(self) -> None:
        self._began = monotonic()
        submitters = (self._submit, self._submit, self.over_http.submit)
        loops: list[Callable[[], None]] = [
            partial(self._submit_all, submit) for submit in submitters
        ]
        loops += [
            *[self._act_all] * ACTORS,
            self._look_all,
            self._change_all,
            self._schedule_all,
            self._grow_all,
        ]
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in loops]
        for thread in self._threads:
            thread.start()

    def adopt(self, job_ids: list[int]) -> None:
        """Count jobs that were submitted elsewhere as submitted here."""
        self.submitted += len(job_ids)
        self.open_jobs.update(job_ids)

    def stop_submitting(self) -> None:
        self._no_more.set()

    def end(self) -> None:
        """Stop all clients, without waiting for one that is waiting for an answer."""
        self._no_more.set()
        self._ending.set()
        for thread in self._threads:
            thread.join(60)

    @property
    def settled(self) -> bool:
        """Whether all jobs have ended, and no schedule will submit another one."""
        return self._scheduled_all.is_set() and not self.open_jobs

    def cancel_open(self) -> int:
        """Cancel all unfinished jobs, and return how many there were."""
        with self._lock:
            left = list(self.open_jobs)
        for job_id in left:
            self._try(partial(self._cancel, job_id))
        return len(left)

    def _submit_all(self, submit: Submit) -> None:
        while not self._no_more.is_set():
            with self._lock:
                n = self._next
                due = self._began + n / self.options.jobs_per_s
                full = len(self.open_jobs) >= self.options.lasting
                late = monotonic() >= due
                self._next += late and not full
            if not late or full:
                self._no_more.wait(AGAIN_S if full else 0.05)
                continue
            made = plan(
                self.options.seed,
                n,
                containers=self.containers,
                bundle=self.bundle,
                data=self.data,
            )
            with self._lock:
                last = max(self.open_jobs, default=None)
            if last is not None:
                made = made.behind(last)
            self._submit_until_acknowledged(made, submit)

    def _submit_until_acknowledged(self, made: Plan, submit: Submit) -> None:
        while not self._ending.is_set():
            ids = self._try(lambda: submit([made.spec]))
            if ids is not None:
                self._acknowledged(made, ids[0])
                return
            self._ending.wait(AGAIN_S)

    def _acknowledged(self, made: Plan, job_id: int, *, first: bool = True) -> None:
        spec = made.spec
        key = spec.idempotency_key
        self.history.note("submitted", job_id=job_id, key=key, name=spec.name, writes=made.writes)
        if not first:
            return
        with self._lock:
            self.submitted += 1
            self.kinds[spec.name] += 1
            self.open_jobs.add(job_id)
            for number, (after_s, what) in enumerate(made.acts):
                entry = (monotonic() + after_s, job_id * 10 + number, what, made, job_id)
                heapq.heappush(self._acts, entry)

    def _act_all(self) -> None:
        while not self._ending.is_set():
            with self._lock:
                due = self._acts and self._acts[0][0] <= monotonic()
                act = heapq.heappop(self._acts) if due else None
            if act is None:
                self._ending.wait(0.1)
                continue
            _, _, what, made, job_id = act
            self._try(partial(self._act, what, made, job_id))

    def _act(self, what: str, made: Plan, job_id: int) -> None:
        if what == "cancel":
            self._cancel(job_id)
        elif what == "preempt":
            self.queue.preempt(job_id)
        else:
            self._acknowledged(made, self._submit([made.spec])[0], first=False)

    def _cancel(self, job_id: int) -> None:
        state = self.queue.cancel(job_id)
        self.history.note("cancelled", job_id=job_id, state=state.value)

    def _change_all(self) -> None:
        while not self._no_more.wait(CHANGE_S):
            self._try(self._limits.change)
        while self._try(self._limits.restore) is None:
            if self._ending.wait(AGAIN_S):
                return

    def _grow_all(self) -> None:
        while not self._no_more.wait(LOOK_S):
            self._try(lambda: self.database.rows("grow", again=True, **GROWTH))

    def _schedule_all(self) -> None:
        while not self._no_more.wait(CHANGE_S):
            self._try(self._schedules.change)
        while not self._ending.is_set() and not self._try(self._schedules.pause_all):
            self._ending.wait(AGAIN_S)
        while not self._ending.is_set():
            ids = self._try(self._schedules.jobs)
            if ids is not None:
                with self._lock:
                    self.open_jobs.update(ids)
                self._scheduled_all.set()
            self._ending.wait(LOOK_S)

    def _look_all(self) -> None:
        while not self._ending.wait(LOOK_S):
            self._try(self.look)

    def look(self) -> None:
        """Read the states of all jobs that had not ended when last seen."""
        with self._lock:
            asked = list(self.open_jobs)
        rows = self.jobs.statuses(asked) if asked else []
        ended = {row["job_id"]: row["state"] for row in rows if State(row["state"]).terminal}
        for job_id, state in ended.items():
            self.history.note("seen", job_id=job_id, state=state)
        with self._lock:
            self.states.update(ended.values())
            self.open_jobs -= ended.keys()

    def _try(self, step: Callable[[], T]) -> T | None:
        try:
            return step()
        except (ForgeError, psycopg.Error, PoolTimeout, httpx.HTTPError) as error:
            self.history.note("unanswered", error=str(error))
            if isinstance(error, (IdempotencyConflict, JobUnknown)):
                self.refused[error.message] += 1
            if isinstance(error, httpx.HTTPStatusError) and error.response.is_client_error:
                self.refused[f"{error}: {error.response.text}"[:300]] += 1
            return None
