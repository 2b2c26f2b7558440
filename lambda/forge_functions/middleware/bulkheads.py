"""Bulkheads: reports and pages cannot use up the lease protocol's threads and connections."""

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from enum import StrEnum
from hashlib import sha256
from http import HTTPStatus

from forge_schema.model.errors import ForgeError
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from forge_functions.errors import Refused

REPORTS = ("/api/reports/", "/reports/")
# These wait in a coroutine, or need no thread.
NEVER_HELD = ("/health", "/api/workers/stream", "/api/objects/", "/static/")
RETRY_AFTER_S = "5"
# Maximum number of reports running or waiting.
OF_ONE_CALLER = 4


class Part(StrEnum):
    """The kind of a request. Each part has its own connections."""

    PROTOCOL = "protocol"
    READS = "reads"
    REPORTS = "reports"


part: ContextVar[Part] = ContextVar("part", default=Part.PROTOCOL)


def part_of(method: str, path: str) -> Part:
    """Return the part that a request belongs to."""
    if method != "GET" or path.startswith(NEVER_HELD):
        return Part.PROTOCOL
    return Part.REPORTS if path.startswith(REPORTS) else Part.READS


class Admission:
    """Limits how many requests run and wait, in total and per caller."""

    def __init__(self, *, running: int, waiting: int, of_one_caller: int) -> None:
        self._free = asyncio.Semaphore(running)
        self._most, self._of_one_caller = running + waiting, of_one_caller
        self._admitted: Counter[str] = Counter()

    @asynccontextmanager
    async def admitted(self, who: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it until the block ends.

        Raises:
            Refused: 429 if the caller has too many requests in progress, 503 if all together do.
        """
        if self._admitted[who] >= self._of_one_caller:
            raise _refused(HTTPStatus.TOO_MANY_REQUESTS, "too_many_at_once", OWN)
        if self._admitted.total() >= self._most:
            raise _refused(HTTPStatus.SERVICE_UNAVAILABLE, "busy", ALL)
        self._admitted[who] += 1
        try:
            async with self._free:
                yield
        finally:
            self._admitted -= Counter({who: 1})


OWN = "this caller has too many requests in progress"
ALL = "too many requests of this kind are in progress"


class Bulkheads:
    """Plain ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        # Together they leave half of the process's 40 threads to the lease protocol.
        self._parts = {
            Part.READS: Admission(running=16, waiting=64, of_one_caller=32),
            Part.REPORTS: Admission(running=2, waiting=6, of_one_caller=OF_ONE_CALLER),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = part_of(scope.get("method", ""), scope.get("path", ""))
        if scope["type"] != "http" or chosen is Part.PROTOCOL:
            await self._app(scope, receive, send)
            return
        part.set(chosen)
        request = Request(scope)
        try:
            async with self._parts[chosen].admitted(_who(request)):
                await self._app(scope, receive, send)
        except Refused as error:
            answer = request.app.exception_handlers[ForgeError](request, error)
            response = await answer if inspect.isawaitable(answer) else answer
            await response(scope, receive, send)


def _who(request: Request) -> str:
    """Return a key that distinguishes callers before authentication."""
    shown = request.headers.get("authorization") or request.headers.get("cookie") or ""
    address = request.client.host if request.client else ""
    return sha256(f"{shown}@{address}".encode()).hexdigest()


def _refused(status: HTTPStatus, code: str, message: str) -> Refused:
    hint = "wait until some have ended; narrow reports with `since` to make them faster"
    return Refused(status, code, message, hint=hint, headers={"Retry-After": RETRY_AFTER_S})
