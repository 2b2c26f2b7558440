"""`forge explain`: why a job waits, where it would run, or how it ended."""

from collections.abc import Iterator
from difflib import get_close_matches

from forge_schema.database.pool import Database, Row
from forge_schema.explain import past as explain_past
from forge_schema.explain.estimate import estimate
from forge_schema.explain.fleet import FleetChances, fleet
from forge_schema.explain.front import MOST_AHEAD
from forge_schema.explain.gang import Machines, kept_text, machines, members_text
from forge_schema.explain.gang import remedies as gang_remedies
from forge_schema.explain.limits import how_it_failed, limits
from forge_schema.explain.remedies import of_limits, remedies
from forge_schema.explain.text import LABEL, amount_text, wish
from forge_schema.model.explanation import (
    AttemptEnd,
    Chance,
    Explanation,
    Limit,
    Outlook,
    Remedy,
    Requirement,
    WorkerChance,
)
from forge_schema.model.job import EXPLAINED, MOST_EXPLAINED, Firing, job_unknown
from forge_schema.model.quantities import counted, names_text
from forge_schema.model.spec import IS_SPOT, KEYS, MAX_PRICE, SPOT
from forge_schema.model.states import Reason, State
from forge_schema.queue.reservation import PATIENCE_S
from forge_schema.read.jobs import Jobs
from forge_schema.trail import job_displacing

# Starts that failed one after the other, after which waiting alone is no advice.
REPEATS = 2
# Limits that are times: the job's outlook is `scheduled` instead of `held`.
TIMES = {"backing_off", "delayed", "due"}
# Of one that never connected, nobody knows whether it could run the job.
AWAY = {Chance.CONSTRAINED, Chance.DRAINING, Chance.STOPPING, Chance.OFFLINE}


def displacement(database: Database, status: Row) -> Iterator[str]:
    """Yield which jobs leave for an unfinished one, and for what it leaves, left or waits."""
    params = {"job_id": status["job_id"], "attempt": status["attempt"]}
    for row in database.rows("explain_displaced", again=True, **params):
        if leaving := row["leaving"]:
            some = names_text([str(job_id) for job_id in leaving])
            alone = len(leaving) == 1
            yield f"{'job' if alone else 'jobs'} {some} {'makes' if alone else 'make'} room for it"
        running = status["state"] == State.RUNNING
        word = "leaves" if running else "left"
        if row["by"] is not None:
            yield f"it {word} for job {job_displacing(row)}"
        if row["owner"] is not None:
            yield f"it {word} since the budget of {row['owner']} is spent"
        if row["yields_for"] is not None and not running:
            yield f"slots of its queue are kept for job {row['yields_for']}, for which others leave"


def explain(
    database: Database, job_id: int, *, workers: int = EXPLAINED, patience_s: float = PATIENCE_S
) -> Explanation:
    """Explain why a job is in its state, by the rules of the claim.

    Args:
        database: an open database.
        job_id: the job; the caller must be allowed to see it.
        workers: how many workers to describe, the best matches first.
        patience_s: seconds that workers pass a job by before they reserve room for it.

    Raises:
        JobUnknown: there is no such job.
    """
    status = Jobs(database).job(job_id)
    job = database.row("explain_job", again=True, job_id=job_id)
    if job is None:
        # Retention has removed it since.
        raise job_unknown(job_id)
    if State(status["state"]).terminal:
        return _ended(database, job, status)
    if status["state"] == State.RUNNING:
        return _running(database, job, status)
    return _waiting(database, job, status, workers=workers, patience_s=patience_s)


def _ended(database: Database, job: Row, status: Row) -> Explanation:
    spent = explain_past.budgets(database, job, status)
    ends = explain_past.attempts(database, status["job_id"])
    return Explanation(
        **_head(status),
        outlook=Outlook.ENDED,
        near_queue=_near_queue(job),
        text=explain_past.ended_text(status, spent, ends),
        end=explain_past.end(database, status),
        remedies=explain_past.remedies(status),
        budgets=spent,
        attempts=ends,
        begins=explain_past.begins(database, status) if explain_past.retryable(status) else "",
    )


def _running(database: Database, job: Row, status: Row) -> Explanation:
    attempt = explain_past.current(database, job, status)
    text = explain_past.running_text(attempt) if attempt else "it has just left its worker"
    waits = members_text(database, job["job_id"]) if job["nodes"] > 1 else ""
    kept = kept_text(job["drafted"], job["drafted_s"])
    return Explanation(
        **_head(status),
        near_queue=_near_queue(job),
        outlook=Outlook.RUNNING,
        text="; ".join(filter(None, [text, waits, kept, *displacement(database, status)])),
        run=attempt,
        budgets=explain_past.budgets(database, job, status),
        attempts=explain_past.attempts(database, status["job_id"]),
        begins=explain_past.begins(database, status),
    )


def _waiting(
    database: Database, job: Row, status: Row, *, workers: int, patience_s: float
) -> Explanation:
    attempts = explain_past.attempts(database, status["job_id"])
    last = next((attempt for attempt in attempts if attempt.attempt == status["attempt"]), None)
    held = limits(job, last)
    chances = fleet(database, job, patience_s=patience_s)
    gang = machines(job, chances) if job["nodes"] > 1 else None
    outlook = gang.outlook() if gang and not held else _outlook(held, chances.chances)
    ahead = min((chances.front.ahead(worker_id) for worker_id in chances.able), default=None)
    guess = (
        estimate(database, job, chances, ahead or 0)
        if outlook in {Outlook.BEHIND, Outlook.BUSY} and gang is None
        else None
    )
    shown = [_held(chance) if held else chance for chance in chances.chances]
    shown = shown[: max(0, min(workers, MOST_EXPLAINED))]
    return Explanation(
        **_head(status),
        near_queue=_near_queue(job),
        outlook=outlook,
        text="".join(f"{text}; " for text in displacement(database, status))
        + _after(last, held)
        + (gang.text() if gang and not held else _text(outlook, held, chances, ahead)),
        nodes=job["nodes"],
        max_nodes=job["max_nodes"],
        free=gang.free if gang else None,
        limits=held,
        ahead=ahead,
        ahead_is_bound=(ahead or 0) >= MOST_AHEAD,
        workers=shown,
        workers_in_all=chances.in_all,
        left_out=chances.in_all - len(shown),
        counts=_counts(chances.chances),
        remedies=_not_only_waiting(_remedies(job, held, chances, gang), attempts),
        estimate=guess,
        budgets=explain_past.budgets(database, job, status),
        attempts=attempts,
        begins=explain_past.begins(database, status),
    )


def _after(last: AttemptEnd | None, held: list[Limit]) -> str:
    """Say why the last attempt did not start, before anything that the job waits for."""
    if last is None or last.reason != Reason.START_FAILED:
        return ""
    if any(limit.code == "backing_off" for limit in held):
        return ""  # it says so
    return f"attempt {last.attempt} failed{how_it_failed(last)}; "


def _not_only_waiting(found_remedies: list[Remedy], attempts: list[AttemptEnd]) -> list[Remedy]:
    """Return remedies for a job that failed to start twice in a row: to wait has not helped."""
    last = attempts[:REPEATS]
    if len(last) < REPEATS or any(attempt.reason != Reason.START_FAILED for attempt in last):
        return found_remedies
    workers = names_text(sorted({attempt.worker for attempt in last if attempt.worker}))
    text = "mend what keeps it from starting" + (f" on {workers}" if workers else "")
    mended = Remedy(code="mend_start", text=text, needed=True)
    return [mended if remedy.code == "wait" else remedy for remedy in found_remedies]


def _remedies(
    job: Row, held: list[Limit], chances: FleetChances, gang: Machines | None
) -> list[Remedy]:
    if gang is None:
        return remedies(job, held, chances)
    return of_limits(job, held) or gang_remedies(job, gang, chances)


def _held(chance: WorkerChance) -> WorkerChance:
    free = chance.chance is Chance.STARTS
    return chance.model_copy(update={"text": "is free for it"}) if free else chance


def _near_queue(job: Row) -> str:
    usual = KEYS["queue"].default
    if job["other_queues"] is None or job["queue"] == usual:
        return ""
    known = [usual], job["other_queues"]
    near = (get_close_matches(job["queue"], names, n=1) for names in known)
    return next((str(close[0]) for close in near if close), "")


def _head(status: Row) -> Row:
    names = ("job_id", "name", "owner", "queue", "priority", "state", "attempt")
    head = {name: status[name] for name in names}
    return {**head, "firing": Firing.of(status["idempotency_key"])}


def _counts(chances: list[WorkerChance]) -> dict[Chance, int]:
    kinds = [each.chance for each in chances]
    return {chance: kinds.count(chance) for chance in Chance if chance in kinds}


def _outlook(held: list[Limit], chances: list[WorkerChance]) -> Outlook:
    if held:
        return Outlook.SCHEDULED if held[0].code in TIMES else Outlook.HELD
    kinds = {chance.chance for chance in chances}
    if not kinds:
        return Outlook.NO_WORKER
    if Chance.STARTS in kinds:
        return Outlook.STARTS
    if kinds & {Chance.BEHIND, Chance.RESERVED}:
        return Outlook.BEHIND
    if kinds & {Chance.BUSY, Chance.AVOIDED}:
        return Outlook.BUSY
    return Outlook.UNAVAILABLE if kinds & AWAY else Outlook.UNFIT


def _nobody(chances: FleetChances) -> str:
    """Say which secret, handler or label no worker has, or else that none can run the job."""
    lacking = [chance.lacking for chance in chances.chances if chance.chance is Chance.UNFIT]
    if text := _too_dear(chances):
        return text
    asked_of_first = chances.candidates[chances.chances[0].worker_id].asked if lacking else []
    for asked in asked_of_first:
        if asked.name.startswith(LABEL) and all(asked.name in names for names in lacking):
            return f"no online worker has {wish(asked)}"
    unknown = any(chance.chance is Chance.NEVER_CAME for chance in chances.chances)
    return "no worker is known that can run it" if unknown else "no worker can run it"


def _too_dear(chances: FleetChances) -> str:
    """Say so if workers fit but for their price, or for being spot machines or not."""
    missed: dict[str, list[Requirement]] = {}
    for chance in chances.chances:
        unmet = [asked for asked in chance.requirements if not asked.met]
        if unmet and all(asked.name in {LABEL + SPOT, LABEL + MAX_PRICE} for asked in unmet):
            for asked in unmet:
                missed.setdefault(asked.name, []).append(asked)
    reasons = []
    if spot := missed.get(LABEL + SPOT):
        reasons.append(f"no worker that fits is {'' if spot[0].wanted == IS_SPOT else 'not '}spot")
    if prices := missed.get(LABEL + MAX_PRICE):
        known = [asked.has for asked in prices if isinstance(asked.has, int | float)]
        most = amount_text(prices[0].wanted)
        cheapest = f"the cheapest costs {min(known):g}" if known else "none has a price"
        reasons.append(f"all that fit cost more than {most} an hour: {cheapest}")
    return " and ".join(reasons)


def _text(outlook: Outlook, held: list[Limit], chances: FleetChances, ahead: int | None) -> str:
    before = f"{counted(ahead or 0, 'job')} {'is' if ahead == 1 else 'are'} ahead of it"
    first = chances.chances[0].worker if chances.chances else ""
    holding = "it waits: " + "; ".join(limit.text for limit in held)
    kept = "it waits: room is reserved for another job"
    room = f"it waits for room{f': {before}' if ahead else ', and is next'}"
    avoided = [chance.worker_id for chance in chances.chances if chance.chance is Chance.AVOIDED]
    if any(chances.candidates[worker_id].row["leaves"] for worker_id in avoided):
        room += "; others than spot machines may take it in some seconds"
    elif avoided:
        room += "; workers where it failed may take it again in some seconds"
    return {
        Outlook.SCHEDULED: holding,
        Outlook.HELD: holding,
        Outlook.STARTS: f"it would start now: {first} takes it with its next claim",
        Outlook.BEHIND: f"it waits its turn: {before}" if ahead else kept,
        Outlook.BUSY: room,
        Outlook.UNAVAILABLE: "no worker that could run it is taking jobs now",
        Outlook.UNFIT: f"{_nobody(chances)} ({chances.in_all} checked)",
        Outlook.NO_WORKER: "no worker is registered",
    }[outlook]
