"""Explain a running or ended job: its attempts, its budgets, and what a retry would do."""

from collections.abc import Sequence
from itertools import takewhile

from forge_schema.database.pool import Database, Row
from forge_schema.explain.fleet import candidates
from forge_schema.model.explanation import AttemptEnd, CurrentAttempt, JobEnd, Remedy, Spending
from forge_schema.model.quantities import counted, duration_text, exit_in_words, names_text
from forge_schema.model.states import Asked, Budget, Phase, Reason, State, reason_in_words
from forge_schema.model.stored import checkpoint_name, passed_over_text

LAST_ATTEMPTS = 20
RETRYABLE = {State.FAILED, State.DEAD}
# By budget: what it grants, in singular and plural, and what is charged to it.
SPENT = {
    Budget.FAILURES: ("retry", "retries", "failed attempt"),
    Budget.LOSSES: ("restart after losses", "restarts after losses", "lost attempt"),
    Budget.PREEMPTIONS: (
        "restart after a preemption",
        "restarts after preemptions",
        "preempted attempt",
    ),
}
BUDGETS = (Budget.FAILURES, Budget.LOSSES, Budget.PREEMPTIONS)
# Of a bundle or a saved image, in a worker's words.
DAMAGED = "the store's copy of "
UPLOADED_ANEW = "submit it again, which replaces the stored copy"
RETRY_IT, READ_OUTPUT = "retry it", "look at its last output"
CORRECT_IT = "correct it and submit it again, or only its command"
# What to do besides retrying.
ADVICE = {
    Reason.OOM: "request more memory with --memory",
    Reason.DISK_FULL: "request more disk with --disk: the job filled what it had",
    Reason.TIMEOUT: "set a longer timeout, or write checkpoints more often",
    Reason.IMAGE_MISSING: "name an image that its workers can pull",
    Reason.BUNDLE_CORRUPT: "submit the folder again",
}
# Why a running job is asked to end, where the word alone does not tell.
ASKED = {Asked.ENDED: "its run is over"}
# Reasons that end a job at once only if the next attempt would end so too.
REPEATED = {Reason.EXIT_CODE, Reason.START_FAILED}
# Reasons that the job's own output may explain.
FAULTS_OF_ITS_OWN = {Reason.EXIT_CODE, Reason.OOM, Reason.TIMEOUT, Reason.STALLED}


def current(database: Database, job: Row, status: Row) -> CurrentAttempt | None:
    """Return where a job runs; None if it has left its worker."""
    candidates_there = candidates(database, job, worker_id=status["worker_id"])
    row = database.row("explain_lease", again=True, job_id=status["job_id"])
    if row is None or not candidates_there:
        return None
    # The job itself occupies part of the worker, so what is free says nothing.
    asked = [each.model_copy(update={"free": None}) for each in candidates_there[0].asked]
    workers = status["workers"]
    return CurrentAttempt(worker=status["worker"], workers=workers, requirements=asked, **row)


def attempts(database: Database, job_id: int) -> list[AttemptEnd]:
    """Return the ends of the last attempts, newest first."""
    rows = database.rows("explain_attempts", again=True, job_id=job_id, count=LAST_ATTEMPTS)
    return [AttemptEnd(**row, budget=_charged(row)) for row in rows]


def _charged(row: Row) -> Budget:
    return Budget.FREE if row["blamed"] else Reason(row["reason"]).budget


def begins(database: Database, status: Row) -> str:
    """Say which checkpoint the attempt that runs or is next begins with, if not the newest."""
    rows = database.rows("checkpoints", again=True, job_id=status["job_id"])
    if status["state"] == State.RUNNING:
        # What it has stored itself comes later.
        rows = [row for row in rows if row["attempt"] < status["attempt"]]
        begun = database.row(
            "explain_begun", again=True, job_id=status["job_id"], attempt=status["attempt"]
        )
        if begun is not None:
            return _began(rows, status["attempt"], (begun["from_attempt"], begun["from_number"]))
    usable = [n for n, row in enumerate(rows) if row["passed_over"] is None]
    text = passed_over_text(rows[: usable[0]] if usable else rows)
    if not text:
        return ""
    name = checkpoint_name(rows[usable[0]]["attempt"], rows[usable[0]]["number"]) if usable else ""
    verb = "began" if status["state"] == State.RUNNING else "begins"
    place = f"with checkpoint {name}" if name else "without a checkpoint"
    following = status["attempt"] + (status["state"] != State.RUNNING)
    return f"attempt {following} {verb} {place}: {text}"


def _began(rows: Sequence[Row], attempt: int, begun: tuple[int, int]) -> str:
    """Say with which checkpoint an attempt has begun, if that is not the newest before it."""
    newer = list(takewhile(lambda row: (row["attempt"], row["number"]) != begun, rows))
    if not newer:
        return ""
    passed = [row for row in newer if row["passed_over"] is not None]
    why = passed_over_text(passed) or f"{counted(len(newer), 'newer one')} could not be restored"
    return f"attempt {attempt} began with checkpoint {checkpoint_name(*begun)}: {why}"


def budgets(database: Database, job: Row, status: Row) -> list[Spending]:
    """Return how much of each budget is used."""
    used = job if job["attempt"] is not None else _spent(database, status["job_id"])
    return [
        Spending(budget=budget, used=used[budget] or 0, granted=status[f"max_{budget}"])
        for budget in BUDGETS
    ]


def _spent(database: Database, job_id: int) -> dict[str, int]:
    rows = database.rows("explain_spent", again=True, job_id=job_id)
    return {
        budget: sum(row["attempts"] for row in rows if Reason(row["reason"]).budget is budget)
        for budget in BUDGETS
    }


def end(database: Database, status: Row) -> JobEnd:
    """Return how a job ended."""
    resumes = _resumes(database, status)
    return JobEnd(
        **{name: status[name] for name in ("reason", "exit_code", "detail", "finished_at")},
        budget=Reason(status["reason"]).budget,
        retryable=retryable(status),
        resumes=resumes,
        retry=_retry(status, resumes)
        if retryable(status)
        else f"only a failed job can be retried; `forge rerun {status['job_id']}` submits it again",
    )


def retryable(status: Row) -> bool:
    """Tell whether `forge retry` would queue a job again."""
    return status["state"] in RETRYABLE


def _resumes(database: Database, status: Row) -> str | None:
    row = database.row("latest_checkpoint", again=True, job_id=status["job_id"])
    if row is not None:
        return f"{row['attempt']}.{row['number']}"
    if status["source_job_id"] is None:
        return None
    number = f":{status['source_attempt']}.{status['source_number']}"
    return f"{status['source_job_id']}{number if status['source_attempt'] else ''}"


def _retry(status: Row, resumes: str | None) -> str:
    place = f"from checkpoint {resumes}" if resumes else "from the beginning"
    following = status["attempt"] + 1
    return f"a retry queues it at once, with fresh budgets: attempt {following} {place}"


def remedies(status: Row) -> list[Remedy]:
    """Return what to do about a job that ended."""
    advised = []
    if retryable(status):
        advised.append(_once_more(status))
        damaged = DAMAGED in (status["detail"] or "")
        if advice := UPLOADED_ANEW if damaged else ADVICE.get(Reason(status["reason"])):
            advised.insert(0, Remedy(code=status["reason"], text=advice))
        if status["reason"] in FAULTS_OF_ITS_OWN:
            last = f"forge logs {status['job_id']} --tail 20"
            advised.insert(0, Remedy(code="logs", text=READ_OUTPUT, command=last))
    return advised


def _once_more(status: Row) -> Remedy:
    job_id = status["job_id"]
    if status["state"] == State.FAILED and status["reason"] == Reason.EXIT_CODE:
        again = f"forge rerun {job_id} -- COMMAND"
        return Remedy(code="correct", text=CORRECT_IT, command=again)
    return Remedy(code="retry", text=RETRY_IT, command=f"forge retry {job_id}")


def ended_text(status: Row, spent: list[Spending], ends: Sequence[AttemptEnd]) -> str:
    """Say in one sentence how a job ended, and why it was not retried."""
    if status["detail"] and (status["reason"] == Reason.DEPENDENCY_FAILED or not status["attempt"]):
        return f"it was cancelled before it began: {status['detail']}"
    why = f": {_why(status)}" if status["reason"] != status["state"] else ""
    was = {"cancelled": "was cancelled", "dead": "failed"}.get(status["state"], status["state"])
    text = f"it {was} after {counted(status['attempt'], 'attempt')}{why}"
    return "; ".join(filter(None, [text, _not_again(status, spent, ends)]))


def _why(status: Row) -> str:
    reason, code = status["reason"], status["exit_code"]
    if reason == Reason.EXIT_CODE:
        return exit_in_words(code)
    return f"{reason_in_words(reason)}{f' (exit code {code})' if code else ''}"


def _not_again(status: Row, spent: list[Spending], ends: Sequence[AttemptEnd]) -> str:
    if status["state"] == State.FAILED and status["reason"] in REPEATED:
        return "not retried, because it would fail the same way again"
    over = next((budget for budget in spent if budget.used > budget.granted), None)
    if over is None or status["state"] != State.DEAD:
        return ""
    singular, many, ended = SPENT[over.budget]
    used = counted(over.used, ended)
    if sum(each.budget is over.budget for each in ends) > over.used:
        used += f" since `forge retry {status['job_id']}`"
    if not over.granted:
        return f"no {many} were allowed ({used})"
    if over.granted == 1:
        return f"the one {singular} is used up ({used})"
    return f"all {over.granted} {many} are used up ({used})"


def running_text(attempt: CurrentAttempt) -> str:
    """Say in one sentence where a job runs."""
    why = attempt.asked and ASKED.get(attempt.asked, attempt.asked)
    asked = f"; it is asked to end: {why}" if why else ""
    phase = "" if attempt.phase == Phase.RUNNING else f" ({attempt.phase})"
    fewer = f"{attempt.nodes} of up to {counted(attempt.max_nodes, 'machine')}: "
    where = f"{fewer if attempt.nodes < attempt.max_nodes else ''}{names_text(attempt.workers)}"
    saved = (
        "" if attempt.saved_s is None else f"; last checkpoint {duration_text(attempt.saved_s)} ago"
    )
    held = f"for {duration_text(attempt.held_s)}"
    return f"running on {where} {held}{phase}{saved}{asked}{_silence(attempt)}"


def _silence(attempt: CurrentAttempt) -> str:
    if attempt.silent is None or attempt.silent_s is None:
        return ""
    left = attempt.expires_s or 0.0
    then = f"unless it comes back, its lease ends in {duration_text(left)}"
    silence = f"{attempt.silent} was not heard from for {duration_text(attempt.silent_s)}"
    return f"; {silence}: {then if left > 0 else 'its lease is over'}"
