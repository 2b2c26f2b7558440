"""Which worker calls: the holder of a token, or nobody."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.security import APIKeyHeader
from forge_schema.access import tokens
from forge_schema.access.tokens import Token, TokenKind, TokenMalformed
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.model.states import Command, WorkerKind

from forge_functions.errors import Refused
from forge_functions.services import Services, services

HEADER = "X-Worker-Token"
header = APIKeyHeader(
    name=HEADER,
    scheme_name="worker",
    auto_error=False,
    description="A worker's token (`fgw_…`), which an admin made.",
)


@dataclass(frozen=True, slots=True)
class WorkerCaller:
    """A worker that showed its token, as it was at that moment."""

    id: int
    name: str
    kind: WorkerKind
    boot_id: UUID
    command: Command | None
    token: Token

    @property
    def actor(self) -> str:
        """Who acts, for the audit trail."""
        return f"worker:{self.id}"


def worker(
    request: Request,
    shared: Annotated[Services, Depends(services)],
    token: Annotated[str | None, Security(header)],
) -> WorkerCaller:
    """Return the calling worker; a FastAPI dependency.

    Raises:
        Refused: 401 without a valid token, 429 after too many wrong ones.
    """
    known: WorkerCaller | None = getattr(request.state, "worker", None)
    if known is not None:
        return known
    try:
        said = tokens.parse(token or "", TokenKind.WORKER)
    except TokenMalformed as error:
        raise _unauthenticated() from error
    found = _found(shared, said)
    if found is None:
        who = f"worker:{said.id}@{request.client.host if request.client else ''}"
        shared.failures.check(who)
        shared.failures.count(who)
        raise _unauthenticated()
    return found


async def identify(request: Request) -> None:
    """Find out which worker calls before the body is read; `worker` returns it later.

    Raises:
        Refused: as `worker`.
    """
    shared: Services = request.app.state.services
    request.state.worker = await run_in_threadpool(worker, request, shared, await header(request))


def checked_again(shared: Services, caller: WorkerCaller) -> WorkerCaller:
    """Return the caller as it is now, for a request that took its time.

    Raises:
        Refused: 401 when its token is not valid any more.
    """
    found = _found(shared, caller.token)
    if found is None:
        raise _unauthenticated()
    return found


def _found(shared: Services, said: Token) -> WorkerCaller | None:
    row = WorkerTokens(shared.database, actor=f"worker:{said.id}").check(said)
    if row is None:
        return None
    command = row["command"] and Command(row["command"])
    return WorkerCaller(
        row["id"], row["name"], WorkerKind(row["kind"]), row["boot_id"], command, said
    )


def _unauthenticated() -> Refused:
    return Refused(
        HTTPStatus.UNAUTHORIZED,
        "unauthenticated",
        "no valid worker token came with this request",
        hint=f"an admin makes one; it goes into the header {HEADER}",
        headers={"WWW-Authenticate": HEADER},
    )
