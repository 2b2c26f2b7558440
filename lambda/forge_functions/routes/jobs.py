"""Lists of jobs and runs. Non-admins see only their own."""

from typing import Annotated

from fastapi import Query, Request
from forge_schema.model.fields import Id, Text, Word
from forge_schema.model.job import JobStatus, ListedJob
from forge_schema.model.results import Experiment, GroupedBy, RunGroups, Runs
from forge_schema.model.states import State, StateWord
from forge_schema.read.jobs import PAGE
from forge_schema.read.runs.table import Sorted
from pydantic import BaseModel, Field

from forge_functions.auth.roles import AsViewer
from forge_functions.errors import problems
from forge_functions.items import Items, next_page
from forge_functions.middleware.bodies import Body, IdInPath
from forge_functions.middleware.guarded_route import Router

router = Router(prefix="/api/v1/queue", tags=["jobs"], responses=problems(401, 403))


class Wanted(Body):
    """Which jobs to list: the newest that match a filter, before a job's id."""

    q: Annotated[Text, Field(description="a filter, as on the page of jobs")] = ""
    owner: Word | None = None
    state: list[State | StateWord] | None = None
    before: IdInPath | None = None
    count: Annotated[int, Field(ge=1, le=PAGE)] = 50


# A query is frozen, which mypy does not see.
class WhichRuns(Body, Sorted):  # type: ignore[misc]
    """Which runs, and how to sort them: the newest jobs that match a filter."""

    q: Annotated[Text, Field(description="a filter, as on the page of jobs")] = ""
    owner: Word | None = None
    before: IdInPath | None = None


class RunPage(Runs):
    """Some runs. Sorted ones are one page: the first of those found."""

    next: Annotated[
        str | None, Field(description="path and query of the next page of runs that are not sorted")
    ] = None


class WhichGroups(Body):
    """Which runs, and what groups them."""

    by: GroupedBy
    q: Annotated[Text, Field(description="a filter, as on the page of jobs")] = ""
    owner: Word | None = None


class Handle(Body):
    """A job by its id, `@last`, its name or the beginning of its name."""

    handle: Word
    owner: Word | None = None


class Named(BaseModel):
    """The job's id."""

    job_id: int


class Ids(Body):
    """Some jobs."""

    job_ids: Annotated[list[Id], Field(max_length=PAGE, examples=[[1, 2]])]


@router.get("/jobs")
def list_jobs(
    service: AsViewer, wanted: Annotated[Wanted, Query()], request: Request
) -> Items[ListedJob]:
    """List jobs, newest first. Non-admins see only their own."""
    found = service.jobs(
        wanted.q,
        owner=wanted.owner,
        states=wanted.state,
        before=wanted.before,
        count=wanted.count,
    )
    return Items.page(found, request, wanted.count, lambda last: {"before": last.job_id})


@router.get("/runs", responses=problems(422))
def runs(service: AsViewer, which: Annotated[WhichRuns, Query()], request: Request) -> RunPage:
    """List jobs as runs: with what they were given, measured and found.

    The newest come first, or those found are sorted: the newest 10,000 that match, or fewer. A
    column to sort by that none of them has is refused.
    """
    found = service.findings.runs(
        which.q,
        owner=which.owner,
        sort=which.sort,
        descending=which.descending,
        curve=which.curve,
        before=which.before,
        count=which.count,
    )
    last = found.items[-1:] if found.more and which.sort is None else []
    after = [next_page(request, {"before": run.job_id}) for run in last]
    return RunPage(**dict(found), next=after[0] if after else None)


@router.get("/run-groups")
def run_groups(service: AsViewer, which: Annotated[WhichGroups, Query()]) -> RunGroups:
    """List the experiments, sweeps or owners of jobs, with how many there are and their sums.

    Grouped are the newest 10,000 jobs that match, or fewer.
    """
    return service.findings.run_groups(which.q, by=which.by, owner=which.owner)


@router.get("/experiments")
def experiments(
    service: AsViewer, owner: Annotated[Word | None, Query()] = None
) -> Items[Experiment]:
    """List experiments with their newest job, the newest first."""
    return Items(items=service.findings.experiments(owner=owner))


@router.get("/job-id", responses=problems(404))
def job_id(service: AsViewer, named: Annotated[Handle, Query()]) -> Named:
    """Return the id of the job that a handle names; the owner's jobs come first.

    `@last` and `@1` are the owner's newest job, `@2` is the one before it. A name that could mean
    several jobs is refused.
    """
    return Named(job_id=service.job_id(named.handle, owner=named.owner))


@router.post("/statuses")
def statuses(service: AsViewer, wanted: Ids) -> Items[JobStatus]:
    """Return the status of some jobs. Those that do not exist are left out."""
    return Items(items=list(service.statuses(wanted.job_ids).values()))
