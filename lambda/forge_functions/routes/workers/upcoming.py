"""What a full worker may prepare: the job that it would likely be granted next."""

from fastapi import Request
from forge_schema.protocol import messages
from forge_schema.protocol.answers import SignedUrls, Upcoming
from forge_schema.queue.claim import next_inputs, next_job

from forge_functions.auth.worker import absent
from forge_functions.errors import problems
from forge_functions.middleware.bodies import IdInPath as JobId
from forge_functions.objects import is_input
from forge_functions.routes.guarded_route import Router
from forge_functions.routes.workers.protocol import AsWorker
from forge_functions.services import Shared

router = Router(prefix="/api/v1/workers/next", tags=["workers"], responses=problems(401))


@router.post("")
def upcoming(body: messages.Next, caller: AsWorker, shared: Shared) -> Upcoming:
    """Show the job that the worker would likely be granted next. It stays in the queue."""
    with shared.matching.lanes(shared.database, caller.id, body.boot_id) as lanes:
        return Upcoming(grant=next_job(shared.database, lanes, body.past))


@router.post("/{job_id}/objects", responses=problems(404))
def inputs(
    job_id: JobId, body: messages.InputsWanted, caller: AsWorker, shared: Shared, request: Request
) -> SignedUrls:
    """Sign URLs of a waiting job's bundle or saved image, if the worker could run it."""
    found = next_inputs(shared.database, caller.id, job_id)
    if found is None or not all(
        is_input(found["bundle_digest"], found["image_tar"], key, shared.store) for key in body.keys
    ):
        raise absent()
    signer = shared.signer(str(request.base_url))
    return SignedUrls(urls=[signer.get(key) for key in body.keys])
