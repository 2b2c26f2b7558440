"""Bulkheads: what people ask for cannot use up the lease protocol's threads and connections."""

import asyncio
import inspect
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from enum import StrEnum
from hashlib import sha256
from http import HTTPStatus
from math import ceil
from time import monotonic

from forge_schema.model.errors import ForgeError
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forge_functions.errors import Refused
from forge_functions.settings import ServerSettings

REPORTS = ("/api/v1/reports/", "/reports/")
# These wait in a coroutine, or need no thread.
NEVER_HELD = ("/health", "/api/v1/workers/stream", "/api/v1/objects/", "/static/")
WORKERS = "/api/v1/workers/"
RETRY_AFTER_S = 5
# Maximum number of reports running or waiting.
OF_ONE_CALLER = 4
# Connections that workers always find free, while people change things over the same pool.
KEPT_FREE = 2
# A caller may use up at once what it may use in this time.
BURST_S = 10
REMEMBERED = 10_000


class Part(StrEnum):
    """The kind of a request. Reads and reports have connections of their own."""

    PROTOCOL = "protocol"
    CHANGES = "changes"
    READS = "reads"
    REPORTS = "reports"


part: ContextVar[Part] = ContextVar("part", default=Part.PROTOCOL)


def part_of(method: str, path: str) -> Part:
    """Return the part that a request belongs to."""
    if path.startswith(NEVER_HELD) or (method != "GET" and path.startswith(WORKERS)):
        return Part.PROTOCOL
    if method != "GET":
        return Part.CHANGES
    return Part.REPORTS if path.startswith(REPORTS) else Part.READS


class Admission:
    """Limits how many requests run and wait, in total and per caller."""

    def __init__(self, *, running: int, waiting: int, of_one_caller: int) -> None:
        self._free = asyncio.Semaphore(running)
        self._most, self._of_one_caller = running + waiting, of_one_caller
        self._admitted: Counter[str] = Counter()

    @asynccontextmanager
    async def admitted(self, who: str, receive: Receive, *, body: bool) -> AsyncIterator[Receive]:
        """Admit a request until the block ends, and hold a slot for it once its body has come.

        A slot that waited for the body would let slow callers hold up all others.

        Raises:
            Refused: 429 if the caller has too many requests in progress, 503 if all together do.
        """
        if self._admitted[who] >= self._of_one_caller:
            raise _refused(HTTPStatus.TOO_MANY_REQUESTS, "too_many_at_once", OWN, RETRY_AFTER_S)
        if self._admitted.total() >= self._most:
            raise _refused(HTTPStatus.SERVICE_UNAVAILABLE, "busy", ALL, RETRY_AFTER_S)
        self._admitted[who] += 1
        holds = False

        async def receiving() -> Message:
            nonlocal holds
            message = await receive()
            if not holds and not message.get("more_body", False):
                holds = await self._free.acquire()
            return message

        try:
            if not body:
                holds = await self._free.acquire()
            yield receiving
        finally:
            if holds:
                self._free.release()
            self._admitted -= Counter({who: 1})


class Rate:
    """Limits how many requests a caller makes in the long run: a token bucket for each."""

    def __init__(self, per_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._per_s, self._clock = per_s, clock
        # By caller: the requests that it may still make, and when that was so.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> None:
        """Count a request.

        Raises:
            Refused: 429 if there were too many before it.
        """
        now, most = self._clock(), self._per_s * BURST_S
        left, since = self._left.pop(who, (most, now))
        left = min(most, left + (now - since) * self._per_s)
        self._left[who] = max(left - 1, 0.0) if left >= 1 else left, now
        if len(self._left) > REMEMBERED:
            self._left.popitem(last=False)
        if left < 1:
            rest_s = ceil((1 - left) / self._per_s)
            raise _refused(
                HTTPStatus.TOO_MANY_REQUESTS, "too_many_requests", RATE, rest_s, TOGETHER
            )


OWN = "this caller has too many requests in progress"
ALL = "too many requests of this kind are in progress"
RATE = "this caller makes too many requests"
NARROWER = "wait until some have ended; narrow reports with `since` to make them faster"
TOGETHER = "wait; read many jobs at once with POST /api/v1/queue/statuses"


class Bulkheads:
    """Plain ASGI middleware."""

    def __init__(self, app: ASGIApp, *, settings: ServerSettings) -> None:
        self._app = app
        changes = max(1, settings.database_connections - KEPT_FREE)
        # Together they leave sixteen of the process's 40 threads to the lease protocol.
        self._parts = {
            Part.CHANGES: Admission(running=min(changes, 6), waiting=64, of_one_caller=16),
            Part.READS: Admission(running=16, waiting=64, of_one_caller=32),
            Part.REPORTS: Admission(running=2, waiting=6, of_one_caller=OF_ONE_CALLER),
        }
        self._rate = Rate(settings.caller_rate) if settings.caller_rate else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = part_of(scope.get("method", ""), scope.get("path", ""))
        if scope["type"] != "http" or chosen is Part.PROTOCOL:
            await self._app(scope, receive, send)
            return
        part.set(chosen)
        request = Request(scope)
        who, body = _who(request), _has_body(request)
        try:
            if self._rate is not None:
                self._rate.take(who)
            async with self._parts[chosen].admitted(who, receive, body=body) as receiving:
                await self._app(scope, receiving, send)
        except Refused as error:
            answer = request.app.exception_handlers[ForgeError](request, error)
            response = await answer if inspect.isawaitable(answer) else answer
            await response(scope, receive, send)


def _who(request: Request) -> str:
    """Return a key that distinguishes callers before authentication."""
    shown = request.headers.get("authorization") or request.headers.get("cookie") or ""
    address = request.client.host if request.client else ""
    return sha256(f"{shown}@{address}".encode()).hexdigest()


def _has_body(request: Request) -> bool:
    headers = request.headers
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _refused(
    status: HTTPStatus, code: str, message: str, rest_s: int, hint: str = NARROWER
) -> Refused:
    return Refused(status, code, message, hint=hint, headers={"Retry-After": str(rest_s)})
