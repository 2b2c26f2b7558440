"""A job's code, by the digests of its objects."""

from fastapi import Request
from forge_schema.model.fields import Digest
from forge_schema.model.stored import SignedUrl

from forge_functions.auth.roles import AsViewer, JobInPath
from forge_functions.errors import problems
from forge_functions.middleware.guarded_route import Router
from forge_functions.services import Shared

router = Router(
    prefix="/api/v1/queue/jobs/{job_id}", tags=["jobs"], responses=problems(401, 403, 404)
)


@router.get("/code/{digest}")
def code(
    service: AsViewer, job_id: JobInPath, digest: Digest, shared: Shared, request: Request
) -> SignedUrl:
    """Return a URL of an object of the job's code: its bundle, a segment of it, or its diff."""
    return shared.signer(str(request.base_url)).get(service.code_key(job_id, digest))
