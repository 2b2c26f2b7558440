"""Actions on jobs: cancel, retry, preempt."""

from forge_schema.model.states import State
from pydantic import BaseModel

from forge_functions.auth.roles import AsSubmitter
from forge_functions.errors import problems
from forge_functions.items import Done
from forge_functions.middleware.bodies import IdInPath
from forge_functions.middleware.guarded_route import Router

router = Router(prefix="/api/queue/jobs/{job_id}", tags=["jobs"], responses=problems(401, 403, 404))


class Cancelled(BaseModel):
    """The job's state; `running` until its worker has stopped it."""

    state: State


class Preempted(BaseModel):
    """Whether the job was running and so was asked for."""

    asked: bool


@router.post("/cancel")
def cancel(service: AsSubmitter, job_id: IdInPath) -> Cancelled:
    """Cancel a job. One that has ended stays as it is. Idempotent."""
    return Cancelled(state=service.cancel(job_id))


@router.post("/retry", responses=problems(409))
def retry(service: AsSubmitter, job_id: IdInPath) -> Done:
    """Give a failed or dead job fresh budgets and make it ready."""
    service.retry(job_id)
    return Done()


@router.post("/preempt")
def preempt(service: AsSubmitter, job_id: IdInPath) -> Preempted:
    """Ask for a running job back, as a spot notice would. Idempotent."""
    return Preempted(asked=service.preempt(job_id))
