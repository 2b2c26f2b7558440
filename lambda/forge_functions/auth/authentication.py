"""Authenticate callers with bearer tokens, and check their roles."""

import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated

import structlog
from fastapi import Depends, Path, Request, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from forge_schema.access import tokens
from forge_schema.access.api_keys import UNSAID, Keys, Sessions
from forge_schema.access.tokens import TokenKind, TokenMalformed
from forge_schema.database.pool import Row
from forge_schema.model.fields import Word
from forge_schema.model.reading import LARGEST
from forge_schema.model.spec import has_folder
from forge_schema.model.states import Role
from forge_schema.service.caller import Caller
from forge_schema.service.local import LocalService

from forge_functions.auth import short_token, signature
from forge_functions.errors import Refused
from forge_functions.oidc import NoRole, Person
from forge_functions.services import Services, services

# Whom the user of a `forge up` is: whoever can read its token may be anybody there.
UP_OWNER = "X-Forge-Owner"
log = structlog.get_logger(__name__)
bearer = HTTPBearer(
    scheme_name="bearer",
    auto_error=False,
    description=(
        "An API key (`fgk_…`), a JWT from `POST /api/v1/token`, or an OIDC token. "
        "If the key has a public key, every request must be signed: see docs/http-api.md."
    ),
)


async def caller(
    request: Request,
    _credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
) -> Caller:
    """Return the caller. A FastAPI dependency.

    Raises:
        Refused: 401 without valid credentials, 403 for an OIDC token without a known role, 429
            after too many wrong secrets, 503 if its issuer does not answer.
    """
    known: Caller | None = getattr(request.state, "caller", None)
    if known is None:
        await identify(request)
        known = request.state.caller
    return known


async def identify(request: Request) -> None:
    """Authenticate the caller before the body is parsed. `caller` returns it later.

    Raises:
        Refused: as in `caller`.
    """
    # A body is read only from those who have a key or a token.
    known, key = await holder(request)
    if key is not None and key["public_key"] is not None:
        shared: Services = request.app.state.services
        body = await request.body()
        await run_in_threadpool(_check_signature, request, shared, key, body)
    request.state.caller = known


async def holder(request: Request) -> tuple[Caller, Row | None]:
    """Return whose credentials a request shows, and the API key; its signature is not checked.

    They are looked up once for each request.

    Raises:
        Refused: as in `caller`.
    """
    if not hasattr(request.state, "holder"):
        shared: Services = request.app.state.services
        try:
            who = await run_in_threadpool(_holder, request, shared, await bearer(request))
        except Refused as error:
            request.state.holder = error
        else:
            request.state.holder = who
    if isinstance(request.state.holder, Refused):
        raise request.state.holder
    known: tuple[Caller, Row | None] = request.state.holder
    return known


def _holder(
    request: Request, shared: Services, credentials: HTTPAuthorizationCredentials | None
) -> tuple[Caller, Row | None]:
    """Return the caller, and the API key unless it is another issuer's token."""
    text = credentials.credentials if credentials else ""
    if (own := _by_up_token(request, shared, text)) is not None:
        return own, None
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
    if acts_for := key.get("acts_for"):
        return Caller.holding(key, acts_for, session=key["id"]), key
    key_id = key["id"] if shown else None
    return Caller.holding(key, f"key:{key['id']}", key_id=key_id), key


def _by_up_token(request: Request, shared: Services, text: str) -> Caller | None:
    """Return the user of the `forge up` that started this server; the same as without a server."""
    token = shared.settings.up_token
    owner = request.headers.get(UP_OWNER, "")
    if token is None or not owner:
        return None
    if not hmac.compare_digest(text.encode(), token.get_secret_value().encode()):
        return None
    return Caller(owner, Role.ADMIN, f"user:{owner}")


def by_key(request: Request, shared: Services, text: str) -> Row | None:
    """Return the valid API key with this text, or None.

    Raises:
        Refused: 429 after too many wrong secrets.
    """
    try:
        token = tokens.parse(text, TokenKind.KEY)
    except TokenMalformed:
        return None
    row = Keys(shared.database, actor="anonymous").check(token)
    if row is None:
        who = f"key:{token.id}@{request.client.host if request.client else ''}"
        shared.failures.check(who)
        shared.failures.count(who)
    return row


def _by_oidc(shared: Services, text: str) -> Caller:
    with noting_no_role(shared):
        person = shared.issuer.person(text)
    seen = note_person(shared, person)
    others = None if person.everyone and not seen["placed"] else tuple(seen["others"])
    return Caller(person.owner, person.role, person.actor, others=others, team=seen["team"])


def note_person(shared: Services, person: Person) -> Row:
    """Note what the issuer says of a person; return what the person sees, as `Sessions` does."""
    who = (person.actor, person.owner, person.role, person.issued)
    joins = person.team is UNSAID or has_folder(person.owner)
    seen = Sessions(shared.database).note_person(*who, person.team if joins else None)
    if seen["noted"] and shared.settings.oidc_teams:
        _tell_of_team(shared, person, seen)
    return seen


def _tell_of_team(shared: Services, person: Person, seen: Row) -> None:
    """Log why a person is not in a team that the groups stand for."""
    if person.team is UNSAID:
        claim = shared.settings.oidc_team_claim
        log.warning("groups_unsaid", person=person.actor, claim=claim, team=seen["team"])
    elif person.team is not None and not has_folder(person.owner):
        log.warning("owner_joins_no_team", person=person.actor, owner=person.owner)
    elif seen["unknown"] is not None:
        hint = "an admin makes it with `forge team join` or `forge queue limit --team`"
        log.warning("team_unknown", person=person.actor, team=seen["unknown"], hint=hint)


@contextmanager
def noting_no_role(shared: Services) -> Iterator[None]:
    """Note it if the issuer gives a person no role any more."""
    try:
        yield
    except NoRole as error:
        Sessions(shared.database).end_person(error.actor)
        raise


def _check_signature(request: Request, shared: Services, key: Row, body: bytes) -> None:
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


def service_for(role: Role) -> Callable[[Request, Caller, Services], LocalService]:
    """Return the dependency that gives callers of this role or a higher one the service."""

    def permitted(
        request: Request,
        who: Annotated[Caller, Depends(caller)],
        shared: Annotated[Services, Depends(services)],
    ) -> LocalService:
        # Here too, so that a role that is too low is refused before a body that is wrong.
        who.require(role, reading=request.method == "GET")
        return shared.service(who)

    return permitted


def job_in_path(
    job_id: Annotated[
        Word, Path(description="the job's id, `@last`, its name or the beginning of its name")
    ],
    who: Annotated[Caller, Depends(caller)],
    shared: Annotated[Services, Depends(services)],
) -> int:
    """Return the id of the job that a path names, as `/api/v1/queue/job-id` finds it."""
    return shared.service(who).job_id(job_id)


def worker_in_path(
    worker_id: Annotated[Word, Path(description="the worker's id or name")],
    who: Annotated[Caller, Depends(caller)],
    shared: Annotated[Services, Depends(services)],
) -> int:
    """Return the id of the worker that a path names, as `/api/v1/workers/{worker_id}` finds it."""
    if worker_id.isascii() and worker_id.isdecimal() and 0 < int(worker_id) <= LARGEST:
        return int(worker_id)
    return shared.service(who).worker_of(worker_id).id


JobInPath = Annotated[int, Depends(job_in_path)]
WorkerInPath = Annotated[int, Depends(worker_in_path)]
AsViewer = Annotated[LocalService, Depends(service_for(Role.VIEWER))]
AsSubmitter = Annotated[LocalService, Depends(service_for(Role.SUBMITTER))]
AsAdmin = Annotated[LocalService, Depends(service_for(Role.ADMIN))]
