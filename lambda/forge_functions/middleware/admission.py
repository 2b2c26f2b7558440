"""How many requests of a kind run and wait, in all and of one caller."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from math import ceil, inf
from time import monotonic

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from forge_functions.errors import Refused
from forge_functions.middleware.requests import late, too_large

REMEMBERED = 10_000

RETRY_AFTER_S = 5
# A caller runs this part of what runs at once.
SHARE = 4
# A caller may use up at once what it may use in this time.
BURST_S = 10

OWN = "this caller has too many requests in progress"
ALL = "too many requests of this kind are in progress"
RATE = "this caller makes too many requests"
NARROWER = "wait until some have ended; narrow reports with `since` to make them faster"
TOGETHER = "wait; read many jobs at once with POST /api/v1/queue/statuses"


class Buckets:
    """A bucket of tokens for each caller, full at first.

    Args:
        per_s: tokens that come back to each in a second.
        at_once: how many a bucket holds.
        patience_s: how long a caller may be made to wait.
    """

    def __init__(
        self,
        per_s: float,
        at_once: float,
        patience_s: float = 0.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._per_s, self._at_once = per_s, at_once
        self._patience_s, self._clock = patience_s, clock
        # By caller: its tokens, fewer than none if it owes some, and when that was so.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str, cost: float = 1.0) -> float:
        """Take what something costs, if a token is there or will be in time.

        Returns:
            Seconds until that token is there. If that is more than the patience, nothing was taken.
        """
        left, wait_s = self._now(who), self.wait(who)
        self._keep(who, left - cost if wait_s <= self._patience_s else left)
        return wait_s

    def wait(self, who: str) -> float:
        """Return the seconds until a token is there, without taking it."""
        return max(0.0, (1 - self._now(who)) / self._per_s)

    def owe(self, who: str, tokens: float = 1.0) -> None:
        """Take tokens for something that has happened."""
        self._keep(who, self._now(who) - tokens)

    def give_back(self, who: str, tokens: float = 1.0) -> None:
        """Undo what was taken for something that should not have counted."""
        self._keep(who, min(self._at_once, self._now(who) + tokens))

    def _now(self, who: str) -> float:
        left, since = self._left.get(who, (self._at_once, -inf))
        grown = inf if since == -inf else (self._clock() - since) * self._per_s
        return min(self._at_once, left + grown)

    def _keep(self, who: str, left: float) -> None:
        self._left.pop(who, None)
        self._left[who] = left, self._clock()
        if len(self._left) > REMEMBERED:
            self._left.popitem(last=False)


class RequestAdmission:
    """Limits how many requests run and wait.

    Args:
        running: how many run at once.
        waiting: how many wait beside them.
        of_one_caller: how many of one caller may run or wait. Of these, only a quarter of
            `running` run, and the rest waits for them. Without it, all are one caller's.
    """

    def __init__(self, *, running: int, waiting: int, of_one_caller: int = 0) -> None:
        self._free = asyncio.Semaphore(running)
        self._most = running + waiting
        self._of_one_caller = of_one_caller or self._most
        self._share = ceil(running / SHARE) if of_one_caller else running
        self._callers: dict[str, _Caller] = {}
        self._admitted = 0

    @asynccontextmanager
    async def admitted(self, who: str) -> AsyncIterator[AsyncExitStack]:
        """Hold a slot until the block ends, or until what is yielded is closed.

        Raises:
            Refused: 429 if the caller has too many requests in progress, 503 if all together do.
        """
        caller = self._callers.get(who) or _Caller(asyncio.Semaphore(self._share))
        if caller.admitted >= self._of_one_caller:
            raise refused(HTTPStatus.TOO_MANY_REQUESTS, "too_many_at_once", OWN)
        if self._admitted >= self._most:
            raise refused(HTTPStatus.SERVICE_UNAVAILABLE, "busy", ALL)
        self._callers[who] = caller
        caller.admitted += 1
        self._admitted += 1
        try:
            async with AsyncExitStack() as slot:
                await slot.enter_async_context(caller.share)
                await slot.enter_async_context(self._free)
                yield slot
        finally:
            self._admitted -= 1
            caller.admitted -= 1
            if not caller.admitted:
                del self._callers[who]


@dataclass
class _Caller:
    """The requests of one caller that run or wait."""

    share: asyncio.Semaphore
    admitted: int = field(default=0)


class Bodies:
    """Limits how many requests wait for the rest of their bodies. They take no slot meanwhile.

    Args:
        waiting: how many wait at once.
        of_one_caller: how many of one caller.
        within_s: seconds for a whole body.
        most_bytes: the size of a body, at most.
    """

    def __init__(
        self, *, waiting: int, of_one_caller: int, within_s: float, most_bytes: int
    ) -> None:
        self._most, self._of_one_caller = waiting, of_one_caller
        self._within_s, self._most_bytes = within_s, most_bytes
        self._waiting: Counter[str] = Counter()

    async def whole(self, who: str, receive: Receive) -> bytes:
        """Wait for a body.

        Raises:
            Refused: 429 or 503 if too many wait.
            HTTPException: 408 if it is late, 413 if it is too large.
            ClientDisconnect: the client has left.
        """
        if self._waiting[who] >= self._of_one_caller:
            raise refused(HTTPStatus.TOO_MANY_REQUESTS, "too_many_at_once", OWN)
        if self._waiting.total() >= self._most:
            raise refused(HTTPStatus.SERVICE_UNAVAILABLE, "busy", ALL)
        self._waiting[who] += 1
        try:
            async with asyncio.timeout(self._within_s):
                return await self._received(receive)
        except TimeoutError as error:
            raise late() from error
        finally:
            self._waiting[who] -= 1
            if not self._waiting[who]:
                del self._waiting[who]

    async def _received(self, receive: Receive) -> bytes:
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._most_bytes:
                raise too_large(self._most_bytes)
        return bytes(body)


def again(body: bytes, receive: Receive) -> Receive:
    """Return what receives a body again, and then what comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receiving() -> Message:
        return messages.pop() if messages else await receive()

    return receiving


class Rate:
    """Limits how much a caller asks for in the long run."""

    def __init__(
        self, per_s: float, at_once: float = 0, clock: Callable[[], float] = monotonic
    ) -> None:
        self._buckets = Buckets(per_s, at_once or per_s * BURST_S, clock=clock)

    def take(self, who: str, cost: float = 1.0) -> None:
        """Count a request.

        Raises:
            Refused: 429 if there were too many before it.
        """
        _check(self._buckets.take(who, cost))

    def check(self, who: str) -> None:
        """Check that a request would be taken.

        Raises:
            Refused: as in `take`.
        """
        _check(self._buckets.wait(who))


def _check(rest_s: float) -> None:
    if rest_s:
        status = HTTPStatus.TOO_MANY_REQUESTS
        raise refused(status, "too_many_requests", RATE, ceil(rest_s), TOGETHER)


def refused(
    status: HTTPStatus, code: str, message: str, rest_s: int = RETRY_AFTER_S, hint: str = NARROWER
) -> Refused:
    """Return the refusal of a request that may come again after a rest."""
    return Refused(status, code, message, hint=hint, headers={"Retry-After": str(rest_s)})
