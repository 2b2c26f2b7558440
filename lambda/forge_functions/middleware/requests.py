"""Give every request an id, bounds on its body, and a line in the log."""

import asyncio
from http import HTTPStatus
from math import inf
from time import monotonic, perf_counter
from typing import Protocol
from uuid import uuid4

import structlog
from forge_schema.model.quantities import size_text
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forge_functions.errors import CLIENT_LEFT, http_error

log = structlog.get_logger(__name__)

# Their bodies are objects, which the route itself limits to the signed size.
OBJECTS = "/api/v1/objects/"
# The paths of the API whose bodies may be as large as the server's limit.
LARGE = ("/api/v1/queue/", "/api/v1/workers/", "/api/v1/bundles/segments")
SHORT = {f"/api/v1/workers/{verb}" for verb in ("claim", "heartbeat", "disconnect", "next")}
SHORT_BYTES = 64 << 10
# Seconds between two pieces of a body: a slow one occupies a connection.
PIECE_WITHIN_S = 30.0
BODY_WITHIN_S = 60.0
BODILESS = ("GET", "HEAD")
PLAIN = "identity"
# After an error, uvicorn reads the rest of the body to keep the connection.
WORTH_READING = 1 << 16


# Answers whose body is large, or never ends: to make it only to drop it would be dear.
NEVER_BODILESS = (OBJECTS, "/api/v1/workers/stream")


class RequestLog:
    """Plain ASGI, since a wrapped body would break streams. Answers HEAD wherever GET is."""

    def __init__(self, app: ASGIApp, *, body_limit: int) -> None:
        self._app = app
        self._body_limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        request_id = scope.setdefault("state", {})["request_id"] = uuid4().hex
        began, status, left = perf_counter(), 0, False
        method = scope.get("method", "GET")
        bodiless = method == "HEAD" and not scope["path"].startswith(NEVER_BODILESS)

        async def heard() -> Message:
            nonlocal left
            message = await receive()
            left = left or message["type"] == "http.disconnect"
            return message

        async def sending(message: Message) -> None:
            nonlocal status
            if not status:
                status = _handshake(message)
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                # Answers contain secrets, signed URLs and quickly changing data.
                headers.setdefault("Cache-Control", "no-store")
                if status >= HTTPStatus.BAD_REQUEST and _much_may_follow(scope):
                    headers["Connection"] = "close"
            elif bodiless:
                message = {**message, "body": b""}
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                read = {**scope, "method": "GET"} if bodiless else scope
                await self._bounded(read, heard, sending)
            finally:
                took = round(1000 * (perf_counter() - began), 1)
                what = {"method": method, "path": scope["path"]}
                status = status or (CLIENT_LEFT if left else HTTPStatus.INTERNAL_SERVER_ERROR)
                log.info("request", **what, status=int(status), ms=took)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        limit = self._limit(scope["path"])
        if (refused := _refused(scope, limit)) is not None:
            await http_error(Request(scope), refused)(scope, receive, send)
            return
        came, more = 0, True
        # Objects may be large; only their pieces have a timeout.
        ends = inf if limit is None else monotonic() + BODY_WITHIN_S

        async def receiving() -> Message:
            nonlocal came, more
            if not more:
                return await receive()
            message = await _soon(receive, min(PIECE_WITHIN_S, ends - monotonic()))
            more = message.get("more_body", False)
            came += len(message.get("body", b""))
            if limit is not None and came > limit:
                raise too_large(limit)
            return message

        await self._app(scope, receiving, send)

    def _limit(self, path: str) -> int | None:
        if path.startswith(OBJECTS):
            return None
        if path.startswith("/api/") and (path in SHORT or not path.startswith(LARGE)):
            return min(SHORT_BYTES, self._body_limit)
        return self._body_limit


def _handshake(message: Message) -> int:
    """Return the status of a WebSocket's handshake, if this message answers one; else 0."""
    if message["type"] == "websocket.accept":
        return HTTPStatus.SWITCHING_PROTOCOLS
    return HTTPStatus.FORBIDDEN if message["type"] == "websocket.close" else 0


def _refused(scope: Scope, limit: int | None) -> HTTPException | None:
    """Return why a request is refused by its head, if it is."""
    if limit is not None and _announced(scope) > limit:
        return too_large(limit)
    if limit is not None and Headers(scope=scope).get("content-encoding", PLAIN) != PLAIN:
        return HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send the body uncompressed")
    if scope["method"] in BODILESS and has_body(scope) and _has_route(scope):
        return HTTPException(HTTPStatus.BAD_REQUEST, f"a {scope['method']} may not have a body")
    return None


def _has_route(scope: Scope) -> bool:
    # Without one, the router's own refusal says more.
    return any(route.matches(scope)[0] is Match.FULL for route in scope["app"].routes)


async def _soon(receive: Receive, within_s: float) -> Message:
    try:
        return await asyncio.wait_for(receive(), within_s)
    except TimeoutError as error:
        raise late() from error


def late() -> HTTPException:
    """Return the refusal of a body that did not arrive in time."""
    return HTTPException(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time")


def too_large(limit: int) -> HTTPException:
    """Return the refusal of a body that is larger than its limit."""
    return HTTPException(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request's body may have at most {size_text(limit)}"
    )


def _much_may_follow(scope: Scope) -> bool:
    if scope["method"] in BODILESS:
        return has_body(scope)
    chunked = "transfer-encoding" in Headers(scope=scope)
    return chunked or _announced(scope) > WORTH_READING


def has_body(scope: Scope) -> bool:
    """Tell whether a request's head announces a body."""
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _announced(scope: Scope) -> int:
    length = Headers(scope=scope).get("content-length", "0")
    return int(length) if length.isdecimal() else 0


class KnownTurns(Protocol):
    """What is told of known callers; on Lambda there is none."""

    def known(self, address: str) -> None:
        """Do not count what a known caller sent from an address."""


def vouch(request: HTTPConnection) -> None:
    """Note that a request is a known caller's."""
    state = request.scope.get("state", {})
    turns: KnownTurns | None = state.get("turns")
    if turns is not None and not is_known(request.scope):
        state["known"] = True
        turns.known(client_of(request.scope))


def is_known(scope: Scope) -> bool:
    """Tell whether somebody vouched for a request."""
    return bool(scope.get("state", {}).get("known"))


def client_of(scope: Scope) -> str:
    """Return the address of a request's client, as far as it is known."""
    return scope["client"][0] if scope.get("client") else ""
