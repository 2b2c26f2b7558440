"""Bulkheads: what people ask for cannot use up the lease protocol's threads and connections.

Before a request is counted, its caller is known by its head, and its body has come. So nobody is
shut out by requests that nobody vouches for, or that never become complete.
"""

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from enum import StrEnum
from math import inf

from forge_schema.model.errors import ForgeError
from forge_schema.service.caller import Caller
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forge_functions.middleware.admission import Bodies, Rate, RequestAdmission, again
from forge_functions.middleware.requests import SHORT_BYTES, has_body, vouch
from forge_functions.settings import ServerSettings

REPORTS = ("/api/v1/reports/", "/reports/")
# These wait in a coroutine, or need no thread.
NEVER_HELD = ("/health", "/api/v1/objects/", "/static/")
WORKERS = "/api/v1/workers/"
# What workers read: other paths below WORKERS are people's.
READ_BY_WORKERS = (f"{WORKERS}stream", f"{WORKERS}job/")

# Whoever logs in is not known yet.
LOGIN = "/login"
# Connections that workers always find free, while people change things over the same pool.
KEPT_FREE = 2
# A report is worth this many other requests in a caller's rate.
REPORT_COSTS = 20
# Maximum number of reports of one caller, running or waiting.
OF_ONE_CALLER = 4
# The form of a login is small, and comes with its head.
LOGIN_WITHIN_S = 5.0
# Named values in the bodies of one caller. Ten thousand submitted jobs have a hundred thousand, and
# while as many are parsed, for a tenth of a second, nobody else is answered.
NAMED_PER_S, NAMED_AT_ONCE = 20_000.0, 250_000.0

CallerOf = Callable[[Request], Awaitable[Caller | None]]
NoteRefusal = Callable[[Request, Caller, int], Awaitable[None]]


class RequestPart(StrEnum):
    """The kind of a request. Reads and reports have connections of their own."""

    PROTOCOL = "protocol"
    CHANGES = "changes"
    READS = "reads"
    REPORTS = "reports"


part: ContextVar[RequestPart] = ContextVar("part", default=RequestPart.PROTOCOL)


def part_of(method: str, path: str) -> RequestPart:
    """Return the part that a request belongs to."""
    if path.startswith(NEVER_HELD):
        return RequestPart.PROTOCOL
    if path.startswith(READ_BY_WORKERS if method == "GET" else WORKERS):
        return RequestPart.PROTOCOL
    if method != "GET":
        return RequestPart.CHANGES
    return RequestPart.REPORTS if path.startswith(REPORTS) else RequestPart.READS


class Bulkheads:
    """Plain ASGI middleware."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: ServerSettings,
        caller_of: CallerOf,
        note_refusal: NoteRefusal,
    ) -> None:
        self._app = app
        self._caller_of, self._note_refusal = caller_of, note_refusal
        changes = max(1, settings.database_connections - KEPT_FREE)
        # With the entries below, they leave twelve of the process's 40 threads to the lease
        # protocol.
        self._parts = {
            RequestPart.CHANGES: RequestAdmission(
                running=min(changes, 5), waiting=96, of_one_caller=16
            ),
            RequestPart.READS: RequestAdmission(running=12, waiting=128, of_one_caller=32),
            RequestPart.REPORTS: RequestAdmission(
                running=2, waiting=6, of_one_caller=OF_ONE_CALLER
            ),
        }
        self._logins = RequestAdmission(running=2, waiting=64)
        self._strangers = RequestAdmission(running=2, waiting=128)
        # Who a caller is, is looked up in a moment.
        self._entries = {
            RequestPart.CHANGES: RequestAdmission(running=1, waiting=256),
            RequestPart.READS: RequestAdmission(running=4, waiting=256),
        }
        most = settings.body_limit_bytes
        self._bodies = Bodies(waiting=64, of_one_caller=8, within_s=inf, most_bytes=most)
        self._strangers_bodies = Bodies(
            waiting=64, of_one_caller=32, within_s=LOGIN_WITHIN_S, most_bytes=SHORT_BYTES
        )
        self._named = Rate(NAMED_PER_S, NAMED_AT_ONCE)
        self._rate = Rate(settings.caller_rate) if settings.caller_rate else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = part_of(scope.get("method", ""), scope.get("path", ""))
        if scope["type"] != "http" or chosen is RequestPart.PROTOCOL:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            await self._serve(request, chosen, receive, send)
        except (ForgeError, HTTPException, ClientDisconnect) as error:
            kind = ForgeError if isinstance(error, ForgeError) else type(error)
            answer = request.app.exception_handlers[kind](request, error)
            response = await answer if inspect.isawaitable(answer) else answer
            await response(scope, receive, send)

    async def _serve(
        self, request: Request, chosen: RequestPart, receive: Receive, send: Send
    ) -> None:
        caller = await self._caller(request, chosen)
        who = f"address:{request.client.host if request.client else ''}"
        admission, bodies = self._strangers, self._strangers_bodies
        if caller is not None:
            vouch(request)
            who, admission, bodies = f"owner:{caller.owner}", self._parts[chosen], self._bodies
        elif request.url.path.startswith(LOGIN):
            admission = self._logins
        part.set(chosen)
        # Strangers have only the small pools: one address may be that of everybody's proxy.
        if self._rate is not None and caller is not None:
            self._rate.take(who, REPORT_COSTS if chosen is RequestPart.REPORTS else 1)
        # The API answers strangers by their heads alone.
        if has_body(request.scope) and (
            caller is not None or not request.url.path.startswith("/api/")
        ):
            receive = await self._body(bodies, who, receive, limited=caller is not None)
        answer = _Answer(send)
        async with admission.admitted(who) as answer.slot:
            await self._app(request.scope, receive, answer.send)
            if caller is not None:
                await self._note_refusal(request, caller, answer.status)

    async def _body(self, bodies: Bodies, who: str, receive: Receive, *, limited: bool) -> Receive:
        """Wait for a body. What it costs to parse is about how many values have names in it."""
        named = self._named if limited and self._rate is not None else None
        if named is not None:
            named.check(who)
        body = await bodies.whole(who, receive)
        if named is not None:
            named.take(who, body.count(b":"))
        return again(body, receive)

    async def _caller(self, request: Request, chosen: RequestPart) -> Caller | None:
        # A connection for reports may be busy for long.
        looking = RequestPart.CHANGES if chosen is RequestPart.CHANGES else RequestPart.READS
        part.set(looking)
        async with self._entries[looking].admitted(""):
            return await self._caller_of(request)


class _Answer:
    """An answer on its way. With the first piece of many, its slot is given back.

    How fast these are read is the client's.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.slot = AsyncExitStack()
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        if message["type"] == "http.response.body" and message.get("more_body", False):
            await self.slot.aclose()
        await self._send(message)
