"""Authenticate callers with bearer tokens, and check their roles."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from forge_schema.access import tokens
from forge_schema.access.api_keys import Keys
from forge_schema.access.tokens import TokenKind, TokenMalformed
from forge_schema.database.pool import Row
from forge_schema.model.states import Role
from forge_schema.service.caller import Caller

from forge_functions.auth import short_token, signature
from forge_functions.errors import Refused
from forge_functions.services import Services, services

bearer = HTTPBearer(
    scheme_name="bearer",
    auto_error=False,
    description=(
        "An API key (`fgk_…`), a JWT from `POST /api/v1/token`, or an OIDC token. "
        "If the key has a public key, every request must be signed: see docs/http-api.md."
    ),
)


async def body_of(request: Request) -> bytes:
    """Return the request's body, which a signature covers. It can be read again later."""
    return await request.body()


def caller(
    request: Request,
    shared: Annotated[Services, Depends(services)],
    said: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
    body: Annotated[bytes, Depends(body_of)],
) -> Caller:
    """Return the caller. A FastAPI dependency.

    Raises:
        Refused: 401 without valid credentials, 403 for an OIDC token without a known role, 429
            after too many wrong secrets, 503 if its issuer does not answer.
    """
    known: Caller | None = getattr(request.state, "caller", None)
    if known is not None:
        return known
    found, key = _holder(request, shared, said)
    _check_signature(request, shared, key, body)
    return found


async def identify(request: Request) -> None:
    """Authenticate the caller before the body is parsed. `caller` returns it later.

    Raises:
        Refused: as in `caller`.
    """
    shared: Services = request.app.state.services
    # A body is read only from those who have a key or a token.
    found, key = await run_in_threadpool(_holder, request, shared, await bearer(request))
    if key is not None and key["public_key"] is not None:
        body = await body_of(request)
        await run_in_threadpool(_check_signature, request, shared, key, body)
    request.state.caller = found


def _holder(
    request: Request, shared: Services, said: HTTPAuthorizationCredentials | None
) -> tuple[Caller, Row | None]:
    """Return the caller, and the API key unless it is another issuer's token."""
    text = said.credentials if said else ""
    if text.startswith(TokenKind.KEY):
        key, shown = by_key(request, shared, text), True
    elif (issuer := short_token.issuer_of(text)) == short_token.ISSUER:
        key, shown = short_token.read(shared, text), False
    elif issuer and issuer == shared.settings.oidc_issuer and shared.settings.oidc_audience:
        return _by_oidc(shared, text), None
    else:
        key, shown = None, False
    if key is None:
        raise unauthenticated()
    owner, role = key["owner"], Role(key["role"])
    if acts_for := key.get("acts_for"):
        return Caller(owner, role, acts_for, session=key["id"]), key
    return Caller(owner, role, f"key:{key['id']}", key["id"] if shown else None), key


def by_key(request: Request, shared: Services, text: str) -> Row | None:
    """Return the valid API key with this text, or None.

    Raises:
        Refused: 429 after too many wrong secrets.
    """
    try:
        said = tokens.parse(text, TokenKind.KEY)
    except TokenMalformed:
        return None
    row = Keys(shared.database, actor="anonymous").check(said)
    if row is None:
        who = f"key:{said.id}@{request.client.host if request.client else ''}"
        shared.failures.check(who)
        shared.failures.count(who)
    return row


def _by_oidc(shared: Services, text: str) -> Caller:
    person = shared.issuer.person(text)
    return Caller(person.owner, person.role, f"oidc:{person.subject}")


def _check_signature(request: Request, shared: Services, key: Row | None, body: bytes) -> None:
    if key is None or key["public_key"] is None:
        return
    try:
        signature.check(
            shared.database, request, body, signer=key["id"], public_key=key["public_key"]
        )
    except signature.SignatureInvalid as error:
        raise unauthenticated(error.message, error.hint) from error


def unauthenticated(
    message: str = "the request has no valid credentials",
    hint: str = "send the header `Authorization: Bearer …` with an API key from an admin",
) -> Refused:
    """Return the error for a caller that is not authenticated."""
    headers = {"WWW-Authenticate": "Bearer"}
    return Refused(HTTPStatus.UNAUTHORIZED, "unauthenticated", message, hint=hint, headers=headers)
