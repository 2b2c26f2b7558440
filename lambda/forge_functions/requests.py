"""Around every request: its id, a bound on its body, and a line in the log."""

from http import HTTPStatus
from time import perf_counter
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forge_functions.errors import Problem, answer

log = structlog.get_logger(__name__)

# Their bodies are objects, which the route itself bounds by what was signed.
OBJECTS = "/api/objects/"


class TooLarge(Exception):
    """More came than is taken."""


class RequestLog:
    """Plain ASGI, since a wrapped body would break what streams."""

    def __init__(self, app: ASGIApp, *, body_limit: int) -> None:
        self._app = app
        self._body_limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope.setdefault("state", {})["request_id"] = uuid4().hex
        began, status = perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            await self._bounded(scope, receive, sending)
            took = round(1000 * (perf_counter() - began), 1)
            log.info("request", method=scope["method"], path=scope["path"], status=status, ms=took)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(OBJECTS):
            await self._app(scope, receive, send)
            return
        if _announced(scope) > self._body_limit:
            await self._refuse(scope, receive, send)
            return
        came, answered = 0, False

        async def receiving() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > self._body_limit:
                raise TooLarge
            return message

        async def sending(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            await self._app(scope, receiving, sending)
        except TooLarge:
            if not answered:
                await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = Problem(
            code="too_large",
            message=f"a request's body may have {self._body_limit} bytes",
            hint="code and results travel by the URLs that /api/bundles and the objects paths give",
        )
        refusal = answer(Request(scope), HTTPStatus.REQUEST_ENTITY_TOO_LARGE, problem)
        await refusal(scope, receive, send)


def _announced(scope: Scope) -> int:
    said = Headers(scope=scope).get("content-length", "0")
    return int(said) if said.isdecimal() else 0
