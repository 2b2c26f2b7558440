"""Enrolment: a pod requests its own worker token. On Lambda, see `handlers.enrol`."""

from typing import Annotated

from fastapi import Security
from fastapi.security import HTTPAuthorizationCredentials
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.protocol.answers import Enrolled

from forge_functions.auth.authentication import bearer, unauthenticated
from forge_functions.errors import problems
from forge_functions.routes.guarded_route import Router
from forge_functions.services import Shared

router = Router(prefix="/api/v1/workers", tags=["workers"], responses=problems(401, 403))
HINT = "send the header `Authorization: Bearer …` with the pod's projected service-account token"


@router.post("/enrol", responses=problems(404, 409))
def enrol(
    shared: Shared, said: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]
) -> Enrolled:
    """Create an ephemeral worker for the calling pod. A repeat replaces its token."""
    if said is None:
        raise unauthenticated(hint=HINT)
    pod = shared.pods.pod(said.credentials)
    worker_id, token = WorkerTokens(shared.database, actor=pod.actor).enrol(pod.name, pod.labels)
    return Enrolled(worker_id=worker_id, token=token)
