"""Actions on many jobs, with a preview before and a summary after."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Form, Query, Request, Response
from forge_schema.job_filter import parse
from forge_schema.model.fields import Text
from forge_schema.model.job import JobStatus
from forge_schema.model.reading import LARGEST
from forge_schema.model.states import Role, StateWord, WaitsFor
from forge_schema.queue.cancel_retry import MOST
from forge_schema.read import job_pages
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.routes.annotate import tag_names
from forge_functions.dashboard.routes.jobs import Act
from forge_functions.dashboard.session import SubmitsByPage, Visitor
from forge_functions.dashboard.words import t
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter()
ENDED = tuple(word for word in StateWord if word.terminal)
# The states that each action applies to.
FITTING: dict[Act, tuple[StateWord, ...]] = {
    "cancel": (StateWord.QUEUED, StateWord.HELD, StateWord.RUNNING),
    "retry": (StateWord.FAILED,),
    "approve": (StateWord.HELD,),
    "tag": tuple(StateWord),
    "archive": ENDED,
    "restore": ENDED,
}
SHOWN = 20


def fits(act: Act, job: JobStatus) -> bool:
    """Tell whether an action applies to a job."""
    also = {
        "approve": job.approval is not None,
        "archive": not job.archived,
        "restore": job.archived,
    }
    return job.state in FITTING[act] and also.get(act, True)


@dataclass(frozen=True)
class ChosenJobs:
    """The jobs of an action; `more` tells that more jobs may match the filter."""

    jobs: Sequence[JobStatus]
    more: bool = False


class Which(BaseModel):
    """A selection of jobs: some by id, or all that match a filter."""

    act: Act
    job: Annotated[list[int], Field(max_length=MOST)] = []
    q: Text = ""
    all: bool = False


class Confirmed(BaseModel):
    """The ids of the previewed jobs, the filter to return to, and what to tag them with."""

    jobs: Annotated[str, Field(max_length=32 * MOST)]
    q: Text = ""
    add: Annotated[Text, Field(max_length=4_000)] = ""
    remove: Annotated[Text, Field(max_length=4_000)] = ""


@router.get("/jobs/confirm")
def confirm(
    request: Request, who: SubmitsByPage, shared: Shared, which: Annotated[Which, Query()]
) -> Response:
    """Show what an action would do."""
    _may(who, which.act)
    chosen = _matching(shared, who, which) if which.all else _named(shared, who, which.job)
    counts = Counter(job.state for job in chosen.jobs)
    return page(
        request,
        who,
        "jobs_confirm.html",
        which=which,
        chosen=chosen,
        counts=[(word.value, counts[word]) for word in StateWord if counts[word]],
        heading=lambda: _titles()[which.act],
        fitting=sum(fits(which.act, job) for job in chosen.jobs),
        most=MOST,
        shown=SHOWN,
    )


@router.post("/jobs/{act}")
def do(
    request: Request,
    who: SubmitsByPage,
    shared: Shared,
    act: Act,
    confirmed: Annotated[Confirmed, Form()],
) -> Response:
    """Cancel, retry or approve some jobs, tag or archive them. Idempotent."""
    _may(who, act)
    service, ids = shared.service(who), _ids(confirmed.jobs)
    match act:
        case "cancel":
            counts = service.cancel_all(ids)
        case "retry":
            counts = service.retry_all(ids)
        case "approve":
            counts = service.admin.approve(ids).model_dump(exclude={"became"})
        case "tag":
            add, remove = tag_names(confirmed.add), tag_names(confirmed.remove)
            counts = Counter(service.annotate(ids, add=add, remove=remove).became.values())
        case "archive" | "restore":
            acted = service.annotate(ids, archived=act == "archive")
            counts = Counter(acted.became.values())
    params = {**({"q": confirmed.q} if confirmed.q else {}), "did": act, **counts}
    return after(request, f"/jobs?{urlencode(params)}")


def _titles() -> dict[Act, str]:
    return {
        "cancel": t("Cancel jobs"),
        "retry": t("Retry jobs"),
        "approve": t("Approve jobs"),
        "tag": t("Tag jobs"),
        "archive": t("Archive jobs"),
        "restore": t("Bring jobs back"),
    }


def _may(who: Visitor, act: Act) -> None:
    if act == "approve":
        who.require(Role.ADMIN)


def _matching(shared: Services, who: Visitor, which: Which) -> ChosenJobs:
    """Return the jobs that match a filter and that the action applies to."""
    states = [state for word in FITTING[which.act] for state in word.states]
    fitting = parse(which.q).seen_by(who.owner).within(states)
    if fitting is None:
        return ChosenJobs([])
    if which.act == "approve":
        fitting = fitting.having("waits", WaitsFor.APPROVAL)
    if which.act == "restore":
        fitting = fitting.having("archived", "yes")
    own = None if who.own is None else [who.own]
    matching = job_pages.page(shared.database, fitting, scope=own, count=MOST)
    jobs = [JobStatus.model_validate(row) for row in matching.jobs]
    return ChosenJobs(jobs, matching.before is not None)


def _named(shared: Services, who: Visitor, ids: Sequence[int]) -> ChosenJobs:
    some = [i for i in ids if 0 < i <= LARGEST]
    statuses = shared.service(who).statuses(some) if some else {}
    newest = sorted(statuses.items(), reverse=True)
    return ChosenJobs([job for _, job in newest if who.changes(job.owner)])


def _ids(text: str) -> list[int]:
    words = text.split()
    if not words or not all(w.isdecimal() and len(w) < 20 and int(w) <= LARGEST for w in words):  # noqa: PLR2004 - LARGEST has 19 digits
        raise HTTPException(422, "these are not ids of jobs")
    return [int(word) for word in words]
