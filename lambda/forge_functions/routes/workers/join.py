"""Joining: a machine loads the worker from here, and exchanges its line's token."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Request, Response, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials
from forge_schema.access import tokens
from forge_schema.access.join_line import PACKAGE
from forge_schema.access.tokens import TokenKind, TokenMalformed
from forge_schema.access.worker_tokens import JoinRefused, WorkerTokens
from forge_schema.model.errors import ForgeError
from forge_schema.own_authority import AUTHORITY
from forge_schema.protocol.answers import Enrolled, Joined
from pydantic import Field

from forge_functions.auth.authentication import bearer, unauthenticated
from forge_functions.bodies import RequestBody
from forge_functions.errors import Refused, problems
from forge_functions.joining import authority_of, package
from forge_functions.routes.guarded_route import Router
from forge_functions.services import Shared

NAME, PEM = "X-Join-Token", "application/x-pem-file"
HEADER = APIKeyHeader(
    name=NAME,
    scheme_name="join",
    auto_error=False,
    description="The token of a line for a machine (`fgj_…`), which can be used once.",
)

router = Router(tags=["workers"])
enrolment = Router(prefix="/api/v1/workers", tags=["workers"], responses=problems(401, 403))
ENROL_HINT = (
    "send the header `Authorization: Bearer …` with the pod's projected service-account token"
)


class Joining(RequestBody):
    """The secret part of the token that the machine chose for itself."""

    secret: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@router.get(PACKAGE, responses={200: {"content": {"application/zip": {}}}, **problems(409)})
def download() -> Response:
    """Return this server's own package, a wheel. It holds no secrets; anyone may have it."""
    wheel = package()
    headers = {"Content-Disposition": f'attachment; filename="{wheel.name}"'}
    return Response(wheel.content, media_type="application/zip", headers=headers)


@router.get(AUTHORITY, responses={200: {"content": {PEM: {}}}, **problems(409)})
def own_authority(shared: Shared) -> Response:
    """Return the certificate of the authority that issued this server's, if it is one of its own.

    It is the last one of the chain. Anyone may have it. A line for a person or a machine names it
    by its fingerprint.
    """
    certificate = authority_of(shared.settings)
    if certificate is None:
        raise Refused(
            HTTPStatus.CONFLICT, "authority_missing", "this server has no authority of its own"
        )
    return Response(certificate, media_type=PEM)


@router.post("/api/v1/workers/join", responses=problems(401, 429))
def join(
    body: Joining,
    shared: Shared,
    request: Request,
    header: Annotated[str | None, Security(HEADER)] = None,
) -> Joined:
    """Exchange a token to join with, once. A repeat with the same secret has the same answer."""
    try:
        token = tokens.parse(header or "", TokenKind.JOIN)
        joining = WorkerTokens(shared.database, actor=f"worker:{token.id}")
        worker_id, name, text = joining.join(token, body.secret)
    except TokenMalformed as error:
        raise _refused(error) from error
    except JoinRefused as error:
        who = f"join:{token.id}@{request.client.host if request.client else ''}"
        shared.failures.check(who)
        shared.failures.count(who)
        raise _refused(error) from error
    return Joined(worker_id=worker_id, token=text, name=name)


def _refused(error: ForgeError) -> Refused:
    headers = {"WWW-Authenticate": NAME}
    status = HTTPStatus.UNAUTHORIZED
    return Refused(status, error.code, error.message, hint=error.hint, headers=headers)


@enrolment.post("/enrol", responses=problems(404, 409))
def enrol(
    shared: Shared, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]
) -> Enrolled:
    """Create an ephemeral worker for the calling pod. A repeat replaces its token."""
    if credentials is None:
        raise unauthenticated(hint=ENROL_HINT)
    pod = shared.pods.pod(credentials.credentials)
    worker_id, token = WorkerTokens(shared.database, actor=pod.actor).enrol(pod.name, pod.labels)
    return Enrolled(worker_id=worker_id, token=token)
