"""The loop of a search: ask Optuna for points, run them as jobs, tell it what they found.

All that it knows is in the study and in the queue. It may be killed at any moment, and another
process goes on: a trial without a job gets the one of its idempotency key, and an end that was not
told yet is told.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from time import sleep
from typing import Any
from warnings import catch_warnings, simplefilter

from forge_schema.model.fields import NOT_FINITE
from forge_schema.model.job import JobStatus
from forge_schema.model.quantities import counted, names_text
from forge_schema.model.results import SweepPoint, flat, metric_names, number_of, value_at
from forge_schema.model.states import StateWord
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, Trial, TrialState

from forge_client.backend import Backend
from forge_client.errors import ClientError, Outage
from forge_client.search.studies import JOB, SPENT, STOPPED, Search, reached

HOUR_S = 3600.0
UNANSWERED_S = 2.0
ABSENT = object()
RESULT = "result."
# So many trials without the metric show that its name is wrong. How many names that message lists.
ENOUGH, NAMED = 3, 8


@dataclass(frozen=True)
class Spent:
    """What jobs have spent: GPU time, the time that they were held, and the cost of that.

    The cost is None if none is known. It leaves out `unpriced_s` of the time: that of attempts that
    run, were lost, or had a worker without a price.
    """

    gpu_s: float = 0.0
    held_s: float = 0.0
    cost: float | None = None
    unpriced_s: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        known = [spent.cost for spent in (self, other) if spent.cost is not None]
        return Spent(
            self.gpu_s + other.gpu_s,
            self.held_s + other.held_s,
            sum(known) if known else None,
            self.unpriced_s + other.unpriced_s,
        )

    @property
    def estimate(self) -> float:
        """The cost of all the time, at the mean price of that whose cost is known."""
        priced_s = self.held_s - self.unpriced_s
        return (self.cost or 0.0) * (self.held_s / priced_s if priced_s > 0 else 1.0)


def spent_by(backend: Backend, job_id: int) -> Spent:
    """Return what the ended attempts of a job have spent."""
    each = (
        Spent(
            attempt.gpu_seconds,
            attempt.held_s,
            attempt.cost,
            attempt.held_s if attempt.cost is None else 0.0,
        )
        for attempt in backend.attempts(job_id)
    )
    return sum(each, Spent())


def spent_so_far(backend: Backend, job_id: int, gpus: int) -> Spent:
    """Return what a job that has not ended has spent, with its `gpus` on each machine."""
    job = backend.job(job_id)
    now_s = (job.ran_s or 0.0) * job.nodes
    return spent_by(backend, job_id) + Spent(now_s * gpus, now_s, unpriced_s=now_s)


class Driver:
    """Runs a search until it is over; `say` prints a line about a trial."""

    def __init__(self, backend: Backend, search: Search, say: Callable[[str], None]) -> None:
        self._backend = backend
        self._search = search
        self._plan = search.plan
        self._say = say
        # Of each job, the last line of its metrics that was read.
        self._read: dict[int, tuple[int, int]] = {}
        self._asked: set[int] = set()
        # Jobs that succeeded without the metric.
        self._lacking: list[SweepPoint] = []
        self._spent_out = False
        self._is_capped = search.plan.cap is None
        # The jobs that this process submitted, and one of them that ended at no known cost. Those
        # of an earlier process may be from before the workers had a price.
        self._own: set[int] = set()
        self._unpriced: int | None = None

    def run(self) -> None:
        """Go on until all trials have ended.

        Raises:
            ClientError: a job is refused, another process runs the search, or the queue or the
                storage was away for too long.
        """
        outage = Outage()
        try:
            while not (over := outage.ask(self._reached_step)):
                sleep(UNANSWERED_S if over is None else self._backend.slowest_s)
        finally:
            with suppress(ClientError):
                self._search.release()

    def _reached_step(self) -> bool:
        try:
            with reached():
                return self.step()
        except UpdateFinishedTrialError:
            # Whoever ended it meanwhile may run the search now: the next step asks.
            return False

    def step(self) -> bool:
        """Do all that is due now; return whether the search is over."""
        self._search.hold()
        trials = self._search.trials()
        running = [trial for trial in trials if trial.state == TrialState.RUNNING]
        jobs = {trial.number: self._job(trial) for trial in running}
        if jobs and not self._is_capped:
            self._cap()
        states = self._backend.statuses(list(jobs.values())) if jobs else {}
        for trial in running:
            # Each time: with many trials, a step may take longer than a lease.
            self._search.hold()
            self._follow(trial, jobs[trial.number], states.get(jobs[trial.number]))
        trials = self._search.trials()
        self._require_metric(trials)
        running = [trial for trial in trials if trial.state == TrialState.RUNNING]
        self._keep_within_budget(trials, running)
        wanted = 0 if self._spent_out else (self._plan.trials or len(trials) + self._plan.parallel)
        room = min(self._plan.parallel - len(running), wanted - len(trials))
        for _ in range(room):
            self._search.hold()
            self._submit(self._search.ask())
        return not running and room <= 0

    def _cap(self) -> None:
        """Have the queue give turns to as many jobs as the search may have now."""
        plan = self._plan
        self._backend.findings.set_parallel(plan.sweep, plan.parallel, owner=plan.owner)
        self._is_capped = True

    def _job(self, stored: FrozenTrial) -> int:
        job_id: int | None = stored.user_attrs.get(JOB)
        return self._submit(self._search.trial(stored)) if job_id is None else job_id

    def _submit(self, trial: Trial) -> int:
        point = self._search.point(trial)
        (job_id,) = self._backend.submit([self._plan.job(trial.number, point)])
        trial.set_user_attr(JOB, job_id)
        self._own.add(job_id)
        text = ", ".join(
            f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in point.items()
        )
        self._say(f"trial {trial.number}: job {job_id}, {text}")
        return job_id

    def _follow(self, stored: FrozenTrial, job_id: int, status: JobStatus | None) -> None:
        trial = self._search.trial(stored)
        if status is None:
            self._tell(trial, TrialState.FAIL, "its job was removed")
        elif status.terminal:
            self._report(trial, stored, job_id, prune=False)
            self._end(trial, stored, status)
        elif stop := stored.user_attrs.get(STOPPED) or (
            self._report(trial, stored, job_id, prune=True) if self._plan.pruner else None
        ):
            self._stop(trial, job_id, stop)

    def _report(self, trial: Trial, stored: FrozenTrial, job_id: int, *, prune: bool) -> str | None:
        """Report new values of the metric; return why the trial should stop, if it should."""
        # After a preemption, a job reports some steps again; the study keeps the first values.
        last = max(stored.intermediate_values, default=-1)
        more = True
        while more:
            after = self._read.get(job_id, (0, -1))
            lines = self._backend.findings.metrics(job_id, *after)
            more = bool(lines)
            for line in lines:
                self._read[job_id] = (line.token, line.number)
                value = self._reported(line.values)
                if line.step is None or int(line.step) <= last or value is None:
                    continue
                last = int(line.step)
                trial.report(value, last)
                if prune and _should_prune(trial):
                    return f"pruned at step {last}: {self._plan.metric} {value:.6g}"
        return None

    def _stop(self, trial: Trial, job_id: int, reason: str) -> None:
        """Have a job cancelled. Its trial ends once the job has: until then it may succeed."""
        if job_id not in self._asked:
            # First, so that whoever finds the job cancelled knows by whom.
            trial.set_user_attr(STOPPED, reason)
            self._backend.cancel(job_id, reason=reason)
            self._asked.add(job_id)

    def _end(self, trial: Trial, stored: FrozenTrial, status: JobStatus) -> None:
        spent = spent_by(self._backend, status.job_id)
        if spent.held_s and spent.cost is None and status.job_id in self._own:
            self._unpriced = status.job_id
        trial.set_user_attr(SPENT, vars(spent))
        if status.state == StateWord.SUCCEEDED:
            value, fault = self._value(status.job_id)
            if value is None:
                self._tell(trial, TrialState.FAIL, fault)
            else:
                self._tell(trial, TrialState.COMPLETE, f"{self._plan.metric} {value:.6g}", value)
        elif status.state == StateWord.CANCELLED and (stop := stored.user_attrs.get(STOPPED)):
            self._tell(trial, TrialState.PRUNED, stop)
        else:
            self._tell(trial, TrialState.FAIL, f"job {status.job_id} {status.state}")

    def _tell(
        self, trial: Trial, state: TrialState, sentence: str, value: float | None = None
    ) -> None:
        self._search.tell(trial, state, value)
        self._say(f"trial {trial.number}: {sentence}")

    def _value(self, job_id: int) -> tuple[float | None, str]:
        """Return the metric of a job that succeeded, by the names that `sweep compare` has for it.

        If it has none, return why.
        """
        plan = self._plan
        points = self._backend.findings.points(
            plan.sweep, owner=plan.owner, after=job_id - 1, count=1
        )
        # A later one, if it was removed.
        point = next((point for point in points if point.job_id == job_id), None)
        if point is None:
            return None, "its job was removed"
        if value_at(point.result, plan.metric.removeprefix(RESULT), ABSENT) is None:
            return None, f"its job's result has null as {plan.metric}, which NaN becomes"
        value = point.value(plan.metric)
        if value is None:
            self._lacking.append(point)
        lacks = (
            f"reported no {plan.metric}" if value is None else f"ended with {plan.metric} {value}"
        )
        return number_of(value), f"its job {lacks}"

    def _require_metric(self, trials: list[FrozenTrial]) -> None:
        """Refuse to go on if the first few trials succeeded, and none has reported the metric."""
        has_told = any(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in trials)
        if has_told or len(self._lacking) < ENOUGH:
            return
        columns_of_jobs = [
            flat({"result": point.result or {}, "metrics": point.metrics})
            for point in self._lacking
        ]
        names = [*dict.fromkeys(name for columns in columns_of_jobs for name in columns)]
        raise ClientError(
            f"{counted(len(self._lacking), 'trial')} succeeded, and none reported"
            f" {self._plan.metric}: there is {names_text(names, NAMED) or 'nothing'}",
            hint="begin another search with one of these as --metric; this one's running jobs"
            f" continue: `forge cancel --sweep {self._plan.sweep}` ends them,"
            f" `forge sweep resume {self._plan.sweep}` continues it",
            code="name_unknown",
        )

    def _reported(self, values: Mapping[str, Any]) -> float | None:
        """Return the metric in a line, also NaN or infinite: pruners stop what diverges."""
        metric = self._plan.metric
        names = chain.from_iterable(map(metric_names, (metric, metric.removeprefix(RESULT))))
        value = next((values[name] for name in names if name in values), None)
        return float(value) if value in NOT_FINITE else number_of(value)  # type: ignore[arg-type]

    def _keep_within_budget(self, trials: list[FrozenTrial], running: list[FrozenTrial]) -> None:
        """Once the budget is used up, stop the jobs that run; no others begin."""
        if self._plan.gpu_hours is None and self._plan.cost is None:
            return
        ended = sum((Spent(**trial.user_attrs.get(SPENT, {})) for trial in trials), Spent())
        self._require_price(ended)
        jobs = [trial.user_attrs[JOB] for trial in running]
        gpus = self._plan.spec["resources"].get("gpus", 0)
        spent = sum((spent_so_far(self._backend, job_id, gpus) for job_id in jobs), ended)
        hours, most = spent.gpu_s / HOUR_S, self._plan.gpu_hours
        if most is not None and hours >= most:
            reason = f"the budget of {most:g} GPU-hours is used up"
        elif self._plan.cost is not None and spent.estimate >= self._plan.cost:
            reason = f"the budget of {self._plan.cost:g} is used up"
        else:
            return
        self._spent_out = True
        for trial, job_id in zip(running, jobs, strict=True):
            self._stop(self._search.trial(trial), job_id, reason)

    def _require_price(self, ended: Spent) -> None:
        """Refuse a budget that nothing can use up."""
        if self._plan.cost is None or ended.cost is not None or not self._unpriced:
            return
        raise ClientError(
            f"job {self._unpriced} ran on a worker without a price, so its cost is unknown, and"
            " --budget-cost would never end the search",
            hint="start the workers with --price-per-hour, then"
            f" `forge sweep resume {self._plan.sweep}`; the jobs that run continue",
            code="price_unknown",
        )


def _should_prune(trial: Trial) -> bool:
    with catch_warnings():
        # Numpy's, of a trial whose values are all NaN.
        simplefilter("ignore", RuntimeWarning)
        return trial.should_prune()


def best(search: Search) -> dict[str, Any] | None:
    """Return the best trial, None if none has completed."""
    try:
        trial = search.study.best_trial
    except ValueError:
        return None
    return {
        "trial": trial.number,
        "value": trial.value,
        "job_id": trial.user_attrs.get(JOB),
        "parameters": trial.params,
    }
