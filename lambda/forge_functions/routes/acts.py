"""Acting on jobs: cancel, retry, preempt."""

from forge_schema.model.states import State
from pydantic import BaseModel

from forge_functions.auth.caller import Submitter
from forge_functions.auth.job import OwnJob
from forge_functions.errors import problems
from forge_functions.items import Done
from forge_functions.middleware.guarded_route import Router
from forge_functions.services import Shared

router = Router(prefix="/api/queue/jobs/{job_id}", tags=["jobs"], responses=problems(401, 403, 404))


class Cancelled(BaseModel):
    """What became of the job; `running` until its worker has stopped it."""

    state: State


class Preempted(BaseModel):
    """Whether the job runs, and so was asked for."""

    asked: bool


@router.post("/cancel")
def cancel(who: Submitter, job: OwnJob, shared: Shared) -> Cancelled:
    """Cancel a job; one that has ended stays as it is. A repeat changes nothing."""
    return Cancelled(state=shared.queue(who.actor).cancel(job["job_id"]))


@router.post("/retry", responses=problems(409))
def retry(who: Submitter, job: OwnJob, shared: Shared) -> Done:
    """Give a failed or dead job fresh budgets and make it ready."""
    shared.queue(who.actor).retry(job["job_id"])
    return Done()


@router.post("/preempt")
def preempt(who: Submitter, job: OwnJob, shared: Shared) -> Preempted:
    """Ask for a running job back, as a spot notice would. A repeat changes nothing."""
    return Preempted(asked=shared.queue(who.actor).preempt(job["job_id"]))
