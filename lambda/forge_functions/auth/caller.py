"""Authenticate callers with bearer tokens, and check their roles."""

from collections.abc import Callable
from dataclasses import dataclass
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

from forge_functions.auth import short_token, signature
from forge_functions.errors import Refused
from forge_functions.services import Services, services

RANK = {Role.VIEWER: 0, Role.SUBMITTER: 1, Role.ADMIN: 2}
bearer = HTTPBearer(
    scheme_name="bearer",
    auto_error=False,
    description=(
        "An API key (`fgk_…`), a JWT from `POST /api/token`, or an OIDC token. "
        "If the key has a public key, every request must be signed: see docs/http-api.md."
    ),
)


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller. `key_id` is set if it sent the API key itself."""

    owner: str
    role: Role
    actor: str
    key_id: str | None = None

    @property
    def admin(self) -> bool:
        """Whether this caller may access every owner's jobs."""
        return self.role is Role.ADMIN

    def may(self, role: Role) -> bool:
        """Tell whether this caller has `role` or a higher one."""
        return RANK[self.role] >= RANK[role]


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
    text = said.credentials if said else ""
    if text.startswith(TokenKind.KEY):
        key, shown = by_key(request, shared, text), True
    elif (issuer := short_token.issuer_of(text)) == short_token.ISSUER:
        key, shown = short_token.read(shared, text), False
    elif issuer is not None and issuer == shared.settings.oidc_issuer:
        return _by_oidc(shared, text)
    else:
        key, shown = None, False
    if key is None:
        raise unauthenticated()
    _check_signature(request, shared, key, body)
    key_id = key["id"]
    return Caller(key["owner"], Role(key["role"]), f"key:{key_id}", key_id if shown else None)


async def identify(request: Request) -> None:
    """Authenticate the caller before the body is parsed. `caller` returns it later.

    Raises:
        Refused: as in `caller`.
    """
    said, body = await bearer(request), await body_of(request)
    shared: Services = request.app.state.services
    request.state.caller = await run_in_threadpool(caller, request, shared, said, body)


def requires(role: Role) -> Callable[[Caller], Caller]:
    """Return a dependency that accepts callers with this role or a higher one."""

    def permitted(who: Annotated[Caller, Depends(caller)]) -> Caller:
        if not who.may(role):
            raise forbidden(f"this needs the role {role.value}; yours is {who.role.value}")
        return who

    return permitted


Viewer = Annotated[Caller, Depends(requires(Role.VIEWER))]
Submitter = Annotated[Caller, Depends(requires(Role.SUBMITTER))]
Admin = Annotated[Caller, Depends(requires(Role.ADMIN))]


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


def _check_signature(request: Request, shared: Services, key: Row, body: bytes) -> None:
    if key["public_key"] is None:
        return
    try:
        signature.check(shared.database, request, body, key)
    except signature.SignatureInvalid as error:
        raise unauthenticated(error.message, error.hint) from error


def unauthenticated(
    message: str = "the request has no valid credentials",
    hint: str = "send the header `Authorization: Bearer …` with an API key from an admin",
) -> Refused:
    """Return the error for a caller that is not authenticated."""
    headers = {"WWW-Authenticate": "Bearer"}
    return Refused(HTTPStatus.UNAUTHORIZED, "unauthenticated", message, hint=hint, headers=headers)


def forbidden(message: str) -> Refused:
    """Return the error for a caller whose role is too low."""
    hint = "ask an admin for a key with a higher role"
    return Refused(HTTPStatus.FORBIDDEN, "forbidden", message, hint=hint)
