"""An explanation in the reader's language.

The queue's own sentences are English and say the most; in another language they are made anew, of
the codes and numbers beside them.
"""

from typing import TypeVar

from forge_schema.model.explanation import Chance, Explanation, Limit, Outlook, Remedy, WorkerChance

from forge_functions.dashboard import words
from forge_functions.dashboard.formats import duration
from forge_functions.dashboard.words import n, t

P = TypeVar("P", Limit, Remedy, WorkerChance)


def in_words(said: Explanation) -> Explanation:
    """Return an explanation of a waiting job with sentences that its reader reads."""
    if words.reader().language == "en":
        return said
    limits = [_said(one, _limit(one, said)) for one in said.limits]
    basis = {"basis": t("by what has ended lately")}
    changed = {
        "text": _outlook(said, limits),
        "limits": limits,
        "estimate": said.estimate and said.estimate.model_copy(update=basis),
        "remedies": [_said(one, _remedy(one, said)) for one in said.remedies],
        "workers": [_said(one, _chance(one)) for one in said.workers],
    }
    return said.model_copy(update=changed)


def _said(part: P, text: str) -> P:
    return part.model_copy(update={"text": text})


def _outlook(said: Explanation, limits: list[Limit]) -> str:
    ahead = said.ahead or 0
    before = n("{count} job goes before it", "{count} jobs go before it", ahead)
    first = said.workers[0].worker if said.workers else ""
    known = {
        Outlook.STARTS: t("{worker} takes it with its next claim", worker=first),
        Outlook.BEHIND: before if ahead else t("room is kept for another job"),
        Outlook.BUSY: t("it waits for room"),
        Outlook.UNAVAILABLE: t("no worker that could run it takes jobs now"),
        Outlook.UNFIT: t("no worker can run it ({count} checked)", count=said.workers_in_all),
        Outlook.NO_WORKER: t("there is no worker"),
    }
    return known.get(said.outlook) or "; ".join(limit.text for limit in limits)


def _limit(limit: Limit, said: Explanation) -> str:
    span = duration(limit.wait_s)
    numbers = {"used": limit.used, "limit": limit.limit}
    queue, owner = {"name": said.queue}, {"name": said.owner}
    return {
        "due": t("it is due: the sweeper's next tick makes it ready"),
        "backing_off": t("it backs off for {span}", span=span),
        "delayed": t("it is delayed for another {span}", span=span),
        "queue_paused": t("the queue {name} is paused", **queue),
        "owner_paused": t("the owner {name} is paused", **owner),
        "queue_jobs": t("queue {name}: of at most {limit} jobs, {used} run", **queue, **numbers),
        "queue_gpus": t("queue {name}: of at most {limit} GPUs, {used} used", **queue, **numbers),
        "owner_jobs": t("owner {name}: of at most {limit} jobs, {used} run", **owner, **numbers),
        "owner_gpus": t("owner {name}: of at most {limit} GPUs, {used} used", **owner, **numbers),
    }[limit.code]


def _remedy(remedy: Remedy, said: Explanation) -> str:
    changes = remedy.changes or {}
    asked = ", ".join(f"{name}={value}" for name, value in changes.items())
    worker = remedy.worker or ""
    if remedy.code == "wait" and worker:
        return t("wait until {worker} takes it", worker=worker)
    return {
        "resume_queue": t("resume the queue {name}", name=said.queue),
        "resume_owner": t("have the owner {name} resumed by an admin", name=said.owner),
        "wait": t("wait until it is ready"),
        "start_sweeper": t("start a sweeper"),
        "raise_priority": t("submit it with priority {priority}", priority=changes.get("priority")),
        "wait_for_room": t("wait until enough of what {worker} runs has ended", worker=worker),
        "ask_less": t("ask for {asked}: worker {worker} has it", asked=asked, worker=worker),
        "undrain": t("let {worker} take jobs again", worker=worker),
        "relieve": t("bring {worker} within its limits", worker=worker),
        "start_worker": t("start the worker {worker}", worker=worker),
        "name_image": t("name an image, or give {worker} a default image", worker=worker),
        "add_worker": t("start a worker that meets its requirements"),
    }.get(remedy.code, t("allow more at once, or wait for one of its jobs to end"))


def _chance(one: WorkerChance) -> str:
    ahead = n("takes {count} other job first", "takes {count} other jobs first", one.ahead or 0)
    return {
        Chance.STARTS: t("takes it with its next claim"),
        Chance.BEHIND: ahead,
        Chance.RESERVED: t("keeps what is free for a job that comes before"),
        Chance.BUSY: n("is busy with {count} job", "is busy with {count} jobs", one.leases),
        Chance.CONSTRAINED: t("is past its limits"),
        Chance.DRAINING: t("takes no more jobs"),
        Chance.STOPPING: t("takes no more jobs"),
        Chance.OFFLINE: t("was not heard for {span}", span=duration(one.silent_s)),
        Chance.NEVER_CAME: t("never connected"),
        Chance.UNFIT: t("does not meet the requirements, even when idle"),
    }[one.chance]
