"""Which worker calls: the holder of a token, or nobody."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Header, Request
from forge_schema import tokens
from forge_schema.audit import Audit
from forge_schema.states import WorkerKind
from forge_schema.tokens import TokenKind, TokenMalformed
from forge_schema.worker_tokens import WorkerTokens

from forge_functions.auth.failures import Failures
from forge_functions.errors import Refused
from forge_functions.services import Services, services

HEADER = "X-Worker-Token"
failures = Failures()


@dataclass(frozen=True, slots=True)
class WorkerCaller:
    """A worker that showed its token."""

    id: int
    name: str
    kind: WorkerKind

    @property
    def actor(self) -> str:
        """Who acts, for the audit trail."""
        return f"worker:{self.id}"


def worker(
    request: Request,
    shared: Annotated[Services, Depends(services)],
    token: Annotated[str | None, Header(alias=HEADER)] = None,
) -> WorkerCaller:
    """Return the calling worker; a FastAPI dependency.

    Raises:
        Refused: 401 without a valid token, 429 after too many wrong ones.
    """
    try:
        said = tokens.parse(token or "", TokenKind.WORKER)
    except TokenMalformed as error:
        raise _unauthenticated() from error
    address = request.client.host if request.client else ""
    who = f"{said.id}@{address}"
    failures.check(who)
    row = WorkerTokens(shared.database, actor=f"worker:{said.id}").check(said)
    if row is None:
        failures.count(who)
        if request.url.path.endswith("/register"):
            _note(shared, said.id, address)
        raise _unauthenticated()
    return WorkerCaller(row["id"], row["name"], WorkerKind(row["kind"]))


def _note(shared: Services, said: str, address: str) -> None:
    detail: dict[str, object] = {"said": said, "from": address}
    Audit(shared.database).note("anonymous", "registration_refused", detail)


def _unauthenticated() -> Refused:
    return Refused(
        HTTPStatus.UNAUTHORIZED,
        "unauthenticated",
        "no valid worker token came with this request",
        hint=f"an admin makes one; it goes into the header {HEADER}",
        headers={"WWW-Authenticate": HEADER},
    )
