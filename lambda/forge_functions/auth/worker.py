"""Authenticate workers by their tokens, and check that one holds a lease."""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import Request, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.security import APIKeyHeader
from forge_schema.access import tokens
from forge_schema.access.tokens import ParsedToken, TokenKind, TokenMalformed
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.model.lease import Fence
from forge_schema.model.states import Command, WorkerKind
from forge_schema.queue.attempt_records import OwnLease, OwnLeases

from forge_functions.auth import signature
from forge_functions.errors import Refused
from forge_functions.middleware.requests import vouch
from forge_functions.services import Services

HEADER = "X-Worker-Token"
header = APIKeyHeader(
    name=HEADER,
    scheme_name="worker",
    auto_error=False,
    description=(
        "A worker's token (`fgw_…`), created by an admin. "
        "If the worker has a public key, every request must be signed: see docs/http-api.md."
    ),
)


@dataclass(frozen=True, slots=True)
class WorkerCaller:
    """An authenticated worker, as it was at that moment.

    With an `address`, it takes part in gangs. With a `public_key`, it signs its requests.
    """

    id: int
    name: str
    kind: WorkerKind
    boot_id: UUID
    command: Command | None
    token: ParsedToken
    address: str | None = None
    public_key: bytes | None = None

    @property
    def actor(self) -> str:
        """The actor's name for the audit trail."""
        return f"worker:{self.id}"


async def worker(request: Request, _token: Annotated[str | None, Security(header)]) -> WorkerCaller:
    """Return the calling worker. A FastAPI dependency.

    Raises:
        Refused: 401 without a valid token or signature, 429 after too many wrong tokens.
    """
    known: WorkerCaller | None = getattr(request.state, "worker", None)
    if known is None:
        await identify(request)
        known = request.state.worker
    return known


async def identify(request: Request) -> None:
    """Authenticate the worker before the body is parsed. `worker` returns it later.

    Raises:
        Refused: as in `worker`.
    """
    shared: Services = request.app.state.services
    # A body is read only from those who have a token.
    holder = await run_in_threadpool(_holder, request, shared, await header(request))
    if holder.public_key is not None:
        key, body = holder.public_key, await request.body()
        await run_in_threadpool(_check_signature, request, shared, holder, key, body)
    request.state.worker = holder
    vouch(request)


def _holder(request: Request, shared: Services, token: str | None) -> WorkerCaller:
    try:
        secret = tokens.parse(token or "", TokenKind.WORKER)
    except TokenMalformed as error:
        raise _unauthenticated() from error
    holder = _caller(shared, secret)
    if holder is None:
        who = f"worker:{secret.id}@{request.client.host if request.client else ''}"
        shared.failures.check(who)
        shared.failures.count(who)
        raise _unauthenticated()
    return holder


def _check_signature(
    request: Request, shared: Services, known: WorkerCaller, key: bytes, body: bytes
) -> None:
    signer = f"worker:{known.id}"
    try:
        signature.check(shared.database, request, body, signer=signer, public_key=key)
    except signature.SignatureInvalid as error:
        raise _unauthenticated(error.message, error.hint, error.code) from error


def checked_again(shared: Services, caller: WorkerCaller) -> WorkerCaller:
    """Return the current state of the caller, for a request that has waited.

    Raises:
        Refused: 401 if its token is no longer valid.
    """
    holder = _caller(shared, caller.token)
    if holder is None:
        raise _unauthenticated()
    return holder


def _caller(shared: Services, token: ParsedToken) -> WorkerCaller | None:
    row = WorkerTokens(shared.database, actor=f"worker:{token.id}").check(token)
    if row is None:
        return None
    command = row["command"] and Command(row["command"])
    kind = WorkerKind(row["kind"])
    named = (row["id"], row["name"], kind, row["boot_id"], command)
    return WorkerCaller(*named, token, row["address"], row["public_key"])


def _unauthenticated(
    message: str = "the request has no valid worker token",
    hint: str = f"get one from an admin and send it in the header {HEADER}",
    code: str = "unauthenticated",
) -> Refused:
    headers = {"WWW-Authenticate": HEADER}
    return Refused(HTTPStatus.UNAUTHORIZED, code, message, hint=hint, headers=headers)


def own_lease(shared: Services, caller: WorkerCaller, fence: Fence) -> OwnLease:
    """Return the caller's live lease.

    Raises:
        Refused: 404 if it does not exist, has ended, or belongs to another worker.
    """
    lease = OwnLeases(shared.database, caller.id).lease(fence)
    if lease is None:
        raise lost()
    return lease


def own(shared: Services, caller: WorkerCaller, fences: Sequence[Fence]) -> None:
    """Check that leases are the caller's, or were when they ended.

    Raises:
        Refused: 404 if one is not.
    """
    if not OwnLeases(shared.database, caller.id).own(fences):
        raise lost()


def lost() -> Refused:
    """Return the error for a caller that does not hold the lease."""
    return Refused(
        HTTPStatus.NOT_FOUND,
        "lease_unknown",
        "this worker holds no such lease",
        hint="end its job here: the lease has expired, or another worker has the job",
    )


def absent() -> Refused:
    """Return the error for an object that the holder may not access."""
    return Refused(
        HTTPStatus.NOT_FOUND,
        "object_unknown",
        "this lease has no such object",
        hint="request an input of the lease's job, or for a key below the lease's own prefix",
    )
