"""Actions on jobs: cancel, retry, preempt."""

from typing import Annotated

from forge_schema.model.fields import NUMERIC, SMALLINT, Count, Note
from forge_schema.model.states import State
from pydantic import BaseModel, Field

from forge_functions.auth.roles import AsSubmitter, JobInPath
from forge_functions.errors import problems
from forge_functions.items import Done
from forge_functions.middleware.bodies import Body
from forge_functions.middleware.guarded_route import Router
from forge_functions.routes.jobs import Ids

router = Router(prefix="/api/v1/queue", tags=["jobs"], responses=problems(401, 403))
NO_JOB = problems(404)


class CancelledMany(BaseModel):
    """How many jobs are cancelled, run until their workers stop them, had ended, do not exist."""

    cancelled: int
    running: int
    over: int
    absent: int


class RetriedMany(BaseModel):
    """How many jobs are retried, have not ended, ended otherwise, do not exist."""

    retried: int
    unfinished: int
    over: int
    absent: int


class Why(Body):
    """The reason for cancelling a job, for its audit trail."""

    reason: Note | None = None


class Again(Body):
    """The checkpoint of the job that its next attempt begins with: of an attempt, with a number."""

    checkpoint: tuple[Annotated[int, Field(ge=1, le=SMALLINT), NUMERIC], Count] | None = None


class Cancelled(BaseModel):
    """The job's state; `running` until its worker has stopped it."""

    state: State


class Preempted(BaseModel):
    """Whether the job was running and so was asked for."""

    asked: bool


@router.post("/cancel")
def cancel_many(service: AsSubmitter, which: Ids) -> CancelledMany:
    """Cancel up to a thousand jobs in one transaction. Idempotent."""
    return CancelledMany.model_validate(service.cancel_all(which.job_ids))


@router.post("/retry")
def retry_many(service: AsSubmitter, which: Ids) -> RetriedMany:
    """Give up to a thousand failed jobs fresh budgets and queue them again."""
    return RetriedMany.model_validate(service.retry_all(which.job_ids))


@router.post("/jobs/{job_id}/cancel", responses=NO_JOB)
def cancel(service: AsSubmitter, job_id: JobInPath, why: Why | None = None) -> Cancelled:
    """Cancel a job. One that has ended stays as it is. Idempotent."""
    return Cancelled(state=service.cancel(job_id, reason=why.reason if why else None))


@router.post("/jobs/{job_id}/retry", responses=problems(404, 409))
def retry(service: AsSubmitter, job_id: JobInPath, again: Again | None = None) -> Done:
    """Give a failed job fresh budgets and queue it again, from its newest or another checkpoint."""
    service.retry(job_id, checkpoint=again.checkpoint if again else None)
    return Done()


@router.post("/jobs/{job_id}/preempt", responses=NO_JOB)
def preempt(service: AsSubmitter, job_id: JobInPath) -> Preempted:
    """Ask for a running job back, as a spot notice would. Idempotent."""
    return Preempted(asked=service.preempt(job_id))
