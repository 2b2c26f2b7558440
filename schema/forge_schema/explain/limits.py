"""Find the limits that hold a job back on every worker."""

from collections.abc import Iterator

from forge_schema.database.pool import Row
from forge_schema.model.explanation import AttemptEnd, Limit
from forge_schema.model.job import Approval
from forge_schema.model.quantities import counted, duration_text, exit_in_words
from forge_schema.model.states import DependencyKind, Reason, reason_in_words

# Seconds without a tick after which the sweeper counts as missing.
SWEEPER_MISSED_S = 120.0
# The most jobs that a sentence names.
MOST_NAMED = 5
EVENTS = {
    DependencyKind.AFTER: "begin",
    DependencyKind.AFTER_OK: "succeed",
    DependencyKind.AFTER_ANY: "end",
}


def limits(job: Row, last: AttemptEnd | None = None) -> list[Limit]:
    """Return the limits on a waiting job; none if it only waits for a worker.

    `last` is the end of its last attempt.
    """
    held = (*_dependencies(job), *_approval(job), *_turn(job))
    return [*_times(job, last), *held, *_pauses(job), *_concurrency(job)]


def _times(job: Row, last: AttemptEnd | None) -> Iterator[Limit]:
    if job["run_at"] is None:
        return
    left_s = max(0.0, job["wait_s"])
    if job["wait_s"] <= 0:
        code, text = "due", "it will be queued within 10 s"
        if sweeper_missing(job):
            text = f"it is due, but no sweeper has run {_since(job)}"
    elif job["attempt"]:
        code, text = "backing_off", _retrying(job, last, left_s)
    else:
        code, text = "delayed", f"it is delayed for another {duration_text(left_s)}"
    yield Limit(code=code, text=text, until=job["run_at"], wait_s=left_s)


def _retrying(job: Row, last: AttemptEnd | None, left_s: float) -> str:
    left = job["max_failures"] - job["failures"]
    retries = f" ({counted(left, 'retry', 'retries')} left)" if job["failures"] else ""
    how = "" if last is None else how_it_failed(last)
    return f"attempt {job['attempt']} failed{how}; retrying in {duration_text(left_s)}{retries}"


def how_it_failed(last: AttemptEnd) -> str:
    """Continue the words that an attempt failed."""
    if last.reason == Reason.EXIT_CODE:
        return f" with {exit_in_words(last.exit_code)}" if last.exit_code is not None else ""
    first = next(iter((last.detail or "").splitlines()), "")
    if last.reason == Reason.START_FAILED:
        return f" to start{f': {first}' if first else ''}"
    cause = f": {first}" if first and last.reason == Reason.STORAGE_FAILED else ""
    return f" ({reason_in_words(last.reason)}{cause})"


def sweeper_missing(job: Row) -> bool:
    """Tell whether no sweeper has ticked recently."""
    silent = job["sweeper_silent_s"]
    return silent is None or silent > SWEEPER_MISSED_S


def _since(job: Row) -> str:
    silent = job["sweeper_silent_s"]
    return "yet" if silent is None else f"for {duration_text(silent)}"


def _dependencies(job: Row) -> Iterator[Limit]:
    for kind, event in EVENTS.items():
        if needed := [need["job_id"] for need in job["needs"] if need["kind"] == kind]:
            yield Limit(code=kind, text=f"{_jobs(needed)} must {event} first", jobs=needed)


def _approval(job: Row) -> Iterator[Limit]:
    if job["approval"] is not None:
        asked = Approval.model_validate(job["approval"])
        text = f"an admin must approve it: {'; '.join(_asks(asked))}"
        yield Limit(code="approval", text=text, approval=asked)


def _asks(asked: Approval) -> Iterator[str]:
    """Yield why a job needs an approval."""
    if asked.timeout_s is None:
        yield "it has no time limit, so it may spend any amount"
        return
    who = "it" if asked.jobs == 1 else f"its request of {counted(asked.jobs, 'job')}"
    most, hours = asked.most_gpu_hours, asked.all_gpu_hours
    if most is not None and asked.gpu_hours and (hours is None or hours > most):
        amount = "any number of" if hours is None else f"{hours:.6g}"
        yield f"{who} may use {amount} GPU-hours, more than the {most:g} allowed without approval"
    most, cost = asked.most_cost, asked.all_cost
    if most is not None and asked.cost is None:
        yield "its cost is unknown, as no worker that could run it has a price"
    elif most is not None and asked.cost and (cost is None or cost > most):
        amount = "any amount" if cost is None else f"{cost:.2f}"
        yield f"{who} may cost {amount}, more than the {most:.2f} allowed without approval"


def _turn(job: Row) -> Iterator[Limit]:
    most, turns, before = job["parallel"], job["turns"], job["before_it"]
    if most is not None and (turns >= most or not (job["needs"] or job["approval"])):
        queue = f"{before} {'is' if before == 1 else 'are'} before it" if before else "it is next"
        text = f"{most} of the sweep {job['sweep']} may run at once, and {queue}"
        yield Limit(code="turn", text=text, used=turns, wanted=1, limit=most, before=before)


def _jobs(job_ids: list[int]) -> str:
    if len(job_ids) == 1:
        return f"job {job_ids[0]}"
    named = ", ".join(map(str, job_ids[: MOST_NAMED - 1]))
    rest = len(job_ids) - MOST_NAMED + 1
    return f"jobs {named} and {job_ids[-1] if rest <= 1 else f'{rest} more'}"


def _pauses(job: Row) -> Iterator[Limit]:
    # The claim reads only the lane, which has copies of both pauses.
    if not job["paused"]:
        return
    wait_s = (job["next_month"] - job["now"]).total_seconds()
    if job["team_paused"]:
        text = f"the budget of the team {job['team']} is spent for this month"
        yield Limit(code="team_budget", text=text, until=job["next_month"], wait_s=wait_s)
    if job["owner_paused"] and (job["spent_at"] or not job["team_paused"]):
        text = f"the budget of {job['owner']} is spent for this month{_spent(job)}"
        yield Limit(code="budget", text=text, until=job["next_month"], wait_s=wait_s)
    if job["queue_paused"] or not job["owner_paused"]:
        yield Limit(code="queue_paused", text=f"the queue {job['queue']} is paused")


def _spent(job: Row) -> str:
    """Say which parts of a budget are used up."""
    hours, most_hours = job["used_gpu_hours"], job["gpu_hours_per_month"]
    cost, most_cost = job["used_cost"], job["cost_per_month"]
    parts = []
    if None not in {hours, most_hours} and hours >= most_hours:
        parts.append(f"{hours:,.1f} of {counted(most_hours, 'GPU-hour')}")
    if None not in {cost, most_cost} and cost >= most_cost:
        parts.append(f"a cost of {cost:,.2f} of {most_cost:,.2f}")
    return f": {' and '.join(parts)}" if parts else ""


def _concurrency(job: Row) -> Iterator[Limit]:
    for whose in ("queue", "owner", "team"):
        name = job[whose]
        for what, wanted in (("jobs", 1), ("gpus", job["gpus"] * job["nodes"])):
            limit, used = job[f"{whose}_max_{what}"], job[f"{whose}_{what}"]
            if limit is not None and used + wanted > limit:
                yield Limit(
                    code=f"{whose}_{what}",
                    text=_concurrency_text(whose, name, what, (used, wanted, limit)),
                    used=used,
                    wanted=wanted,
                    limit=limit,
                )


def _concurrency_text(whose: str, name: str, what: str, numbers: tuple[int, int, int]) -> str:
    used, wanted, limit = numbers
    noun = "job" if what == "jobs" else "GPU"
    doing = "running" if what == "jobs" else "in use"
    more = f", and the job needs {wanted}" if what == "gpus" else ""
    return f"the {whose} {name} may have {counted(limit, noun)} at once: {used} {doing}{more}"
