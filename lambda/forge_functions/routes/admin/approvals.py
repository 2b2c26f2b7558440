"""Approvals of jobs that may spend more than their owner may without asking."""

from typing import Annotated

from fastapi import Query, Request
from forge_schema.model.admin import Approved, AwaitingApproval
from forge_schema.model.fields import LARGEST, Word
from forge_schema.queue.cancel_retry import MOST
from pydantic import Field

from forge_functions.auth.roles import AsAdmin
from forge_functions.errors import problems
from forge_functions.items import Items
from forge_functions.middleware.bodies import Body, IdInPath
from forge_functions.middleware.guarded_route import Router

router = Router(prefix="/api/v1/admin/approvals", tags=["admin"], responses=problems(401, 403))


class WhichApprovals(Body):
    """Which jobs: after a job's id, of one owner or sweep."""

    owner: Word | None = None
    sweep: Word | None = None
    after: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    count: Annotated[int, Field(ge=1, le=MOST)] = MOST


class Approving(Body):
    """The jobs to approve."""

    job_ids: Annotated[list[IdInPath], Field(min_length=1, max_length=MOST)]


@router.get("")
def list_approvals(
    service: AsAdmin, which: Annotated[WhichApprovals, Query()], request: Request
) -> Items[AwaitingApproval]:
    """List the jobs that wait for approval, the oldest first."""
    found = service.admin.approvals(
        owner=which.owner, sweep=which.sweep, after=which.after, count=which.count
    )
    return Items.page(found, request, which.count, lambda last: {"after": last.job_id})


@router.post("")
def approve(service: AsAdmin, jobs: Approving) -> Approved:
    """Approve jobs. Those that wait for nothing else are ready at once. Idempotent."""
    return service.admin.approve(jobs.job_ids)
