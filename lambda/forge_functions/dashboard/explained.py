"""An explanation in the reader's language.

The queue's own sentences are English and the most detailed. For other languages, sentences are
composed from the codes and numbers beside them.
"""

from typing import TypeVar

from forge_schema.explain.past import REPEATED
from forge_schema.model.explanation import Chance, Explanation, Limit, Outlook, Remedy, WorkerChance

from forge_functions.dashboard import words
from forge_functions.dashboard.formats import duration
from forge_functions.dashboard.words import n, t

MOST_NAMED = 5
P = TypeVar("P", Limit, Remedy, WorkerChance)


def in_words(explanation: Explanation) -> Explanation:
    """Return an explanation of a job that waits or failed, in the reader's language."""
    if words.reader().language == "en":
        return explanation
    if explanation.end:
        remedies = [_worded(remedy, t(remedy.text)) for remedy in explanation.remedies]
        return explanation.model_copy(update={"text": _failed(explanation), "remedies": remedies})
    limits = [_worded(limit, _limit(limit, explanation)) for limit in explanation.limits]
    basis = {"basis": t("from jobs that ended recently")}
    changed = {
        "text": _outlook(explanation, limits),
        "begins": explanation.begins and t("it begins with an older checkpoint"),
        "limits": limits,
        "estimate": explanation.estimate and explanation.estimate.model_copy(update=basis),
        "remedies": [
            _worded(remedy, _remedy(remedy, explanation)) for remedy in explanation.remedies
        ],
        "workers": [
            _worded(worker, _chance(worker, explanation)) for worker in explanation.workers
        ],
    }
    return explanation.model_copy(update=changed)


def _worded(part: P, text: str) -> P:
    return part.model_copy(update={"text": text})


def _failed(explanation: Explanation) -> str:
    text = n(
        "it failed after {count} attempt", "it failed after {count} attempts", explanation.attempt
    )
    over = next((one for one in explanation.budgets if one.used > one.granted), None)
    if over is not None:
        numbers = {"used": over.used, "limit": over.granted}
        return f"{text}; {t('no attempt is left: used {used}, allowed {limit}', **numbers)}"
    if explanation.end and explanation.end.reason in REPEATED:
        return f"{text}; {t('not retried, because it would fail the same way again')}"
    return text


def _outlook(explanation: Explanation, limits: list[Limit]) -> str:
    if explanation.nodes > 1 and not limits:
        return n(
            "it needs {nodes} machines at once, and {count} is free",
            "it needs {nodes} machines at once, and {count} are free",
            explanation.free or 0,
            nodes=explanation.nodes,
        )
    ahead = explanation.ahead or 0
    before = n("{count} job is ahead of it", "{count} jobs are ahead of it", ahead)
    first = explanation.workers[0].worker if explanation.workers else ""
    known = {
        Outlook.STARTS: t("{worker} takes it with its next claim", worker=first),
        Outlook.BEHIND: before if ahead else t("room is reserved for another job"),
        Outlook.BUSY: t("it waits for room"),
        Outlook.UNAVAILABLE: t("no worker that could run it takes jobs now"),
        Outlook.UNFIT: t(
            "no worker can run it ({count} checked)", count=explanation.workers_in_all
        ),
        Outlook.NO_WORKER: t("no worker is registered"),
    }
    return known.get(explanation.outlook) or "; ".join(limit.text for limit in limits)


def _limit(limit: Limit, explanation: Explanation) -> str:
    span = duration(limit.wait_s)
    jobs = ", ".join(map(str, limit.jobs[:MOST_NAMED]))
    numbers = {"used": limit.used, "limit": limit.limit}
    queue, owner = {"name": explanation.queue}, {"name": explanation.owner}
    return {
        "due": t("it will be queued within 10 s"),
        "backing_off": t("it is retried in {span}", span=span),
        "delayed": t("it is delayed for another {span}", span=span),
        "after": t("job {jobs} must begin first", jobs=jobs),
        "after_ok": t("job {jobs} must succeed first", jobs=jobs),
        "after_any": t("job {jobs} must end first", jobs=jobs),
        "turn": n(
            "{limit} of its sweep may run at once, and {count} is before it",
            "{limit} of its sweep may run at once, and {count} are before it",
            limit.before or 0,
            limit=limit.limit,
        ),
        "approval": t("an admin must approve what it may spend"),
        "queue_paused": t("the queue {name} is paused", **queue),
        "budget": t("the budget of {name} is spent for this month", **owner),
        "team_budget": t("the budget of the owner's team is spent for this month"),
        "team_jobs": t("the owner's team: jobs running {used}, allowed {limit}", **numbers),
        "team_gpus": t("the owner's team: GPUs in use {used}, allowed {limit}", **numbers),
        "queue_jobs": t("queue {name}: jobs running {used}, allowed {limit}", **queue, **numbers),
        "queue_gpus": t("queue {name}: GPUs in use {used}, allowed {limit}", **queue, **numbers),
        "owner_jobs": t("owner {name}: jobs running {used}, allowed {limit}", **owner, **numbers),
        "owner_gpus": t("owner {name}: GPUs in use {used}, allowed {limit}", **owner, **numbers),
    }[limit.code]


def _remedy(remedy: Remedy, explanation: Explanation) -> str:
    changes = remedy.changes or {}
    asked = ", ".join(f"{name}={value}" for name, value in changes.items())
    worker = remedy.worker or ""
    nodes = changes.get("nodes")
    if isinstance(nodes, int):
        return n("submit it for {count} machine", "submit it for {count} machines", nodes)
    if remedy.code == "wait" and worker:
        return t("wait until {worker} takes it", worker=worker)
    return {
        "resume_queue": t("resume the queue {name}", name=explanation.queue),
        "raise_budget": t("ask an admin for a larger budget of {name}", name=explanation.owner),
        "raise_team_budget": t("ask an admin for a larger budget of the owner's team"),
        "wait": t("wait until it is due"),
        "wait_for_job": t("wait for the other job"),
        "wait_for_turn": t("wait for jobs of its sweep to end"),
        "approve": t("ask an admin to approve it"),
        "start_sweeper": t("start a sweeper"),
        "raise_priority": t("submit it with priority {priority}", priority=changes.get("priority")),
        "wait_for_room": t("wait until enough jobs on {worker} have ended", worker=worker),
        "ask_less": t("request {asked}: worker {worker} has it", asked=asked, worker=worker),
        "undrain": t("let {worker} take jobs again", worker=worker),
        "relieve": t("bring {worker} within its limits", worker=worker),
        "start_worker": t("start the worker {worker}", worker=worker),
        "add_secret": t("give {worker} the secrets that it names", worker=worker),
        "allow_gangs": t("restart workers with --gang-network host"),
        "name_image": t("name an image, or give {worker} a default image", worker=worker),
        "add_worker": t("start a worker that meets its requirements"),
    }.get(remedy.code, t("allow more at once, or wait for one of its jobs to end"))


def _chance(worker: WorkerChance, explanation: Explanation) -> str:
    free = explanation.nodes > 1 or explanation.limits
    ahead = n("takes {count} other job first", "takes {count} other jobs first", worker.ahead or 0)
    return {
        Chance.STARTS: t("is free for it") if free else t("takes it with its next claim"),
        Chance.BEHIND: ahead,
        Chance.RESERVED: t("reserves its free resources for a job ahead of this one"),
        Chance.BUSY: n("is busy with {count} job", "is busy with {count} jobs", worker.leases),
        Chance.CONSTRAINED: t("is past its limits"),
        Chance.DRAINING: t("takes no more jobs"),
        Chance.STOPPING: t("takes no more jobs"),
        Chance.OFFLINE: t("was last heard from {span} ago", span=duration(worker.silent_s)),
        Chance.NEVER_CAME: t("never connected"),
        Chance.UNFIT: t("does not meet the requirements, even when idle"),
    }[worker.chance]
