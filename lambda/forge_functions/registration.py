"""Record refused registrations in the audit trail, like accepted ones."""

from contextlib import suppress

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from forge_schema.access import tokens
from forge_schema.access.tokens import TokenKind, TokenMalformed
from forge_schema.model.errors import ForgeError
from forge_schema.read.audit import Audit

from forge_functions.auth.worker import HEADER
from forge_functions.errors import Refused
from forge_functions.middleware.guarded_route import GuardedRoute, Handler
from forge_functions.services import Services


class NotedRoute(GuardedRoute):
    """Records who was refused, from where and why."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def noting(request: Request) -> Response:
            try:
                return await handle(request)
            except (Refused, RequestValidationError) as error:
                why = error.code if isinstance(error, Refused) else "invalid"
                await run_in_threadpool(_note, request, why)
                raise

        return noting


def _note(request: Request, why: str) -> None:
    shared: Services = request.app.state.services
    address = request.client.host if request.client else ""
    detail: dict[str, object] = {"said": _said(request), "from": address, "why": why}
    with suppress(ForgeError):
        # Limited per minute and address, so that a flood of refusals does not fill the trail.
        shared.failures.check(f"register@{address}")
        shared.failures.count(f"register@{address}")
        Audit(shared.database).note("anonymous", "registration_refused", detail)


def _said(request: Request) -> str:
    """Return the unverified id in a token."""
    try:
        return tokens.parse(request.headers.get(HEADER, ""), TokenKind.WORKER).id
    except TokenMalformed:
        return ""
