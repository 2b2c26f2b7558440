"""The relay: passes bytes between a caller and the worker that runs a command inside a job.

Both connect to this server. It knows nothing of what it passes, and reads on from one side only
once the other has taken the last message. A worker that is called may be connected to another
server: it tries each that it knows until it finds the caller.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from time import monotonic

from fastapi import WebSocket, WebSocketDisconnect
from fastapi.concurrency import run_in_threadpool
from forge_schema.model.quantities import counted
from forge_schema.shell import ORDER_S, ShellNews

from forge_functions.errors import Refused

# How long a ticket is valid, in seconds.
LASTS_S = 60
MOST, MOST_OF_OWNER = 64, 8
# A worker is called again, because calls may get lost.
CALL_EVERY_S, CALL_S = 3.0, 20.0
IDLE_S, LONGEST_S = 1800.0, 43_200.0
# How often it is checked that the attempt still runs and its caller may still be there.
LOOK_EVERY_S = 30.0
NOBODY = ShellNews(
    code="worker_silent",
    message="its worker did not connect to this server in time",
    hint="its log says why (shell_not_opened); a worker"
    " with direct database access needs --exec-url",
)


OVER = ShellNews(
    code="shell_over",
    message="the shell was closed: nothing was said for half an hour, or it was open for 12 hours",
    hint="open another one",
)


WITHDRAWN = ShellNews(
    code="shell_withdrawn",
    message="the shell was closed: the attempt has ended, or you may no longer enter the job",
    hint="`forge show` says which attempt runs",
)


@dataclass(frozen=True, slots=True)
class Ticket:
    """One shell of an owner, on a worker; `order` is the digest of what may be run."""

    id: str
    owner: str
    actor: str
    worker_id: int
    order: str
    session: str = ""


def digest(order: str) -> str:
    """Return the digest that binds a ticket to its order."""
    return hashlib.sha256(order.encode()).hexdigest()


@dataclass(eq=False)
class Shell:
    """One caller that waits for its worker; `over` is set when the caller has gone.

    `withdrawn` means that the caller may no longer be in the job.
    """

    ticket: Ticket
    worker: "asyncio.Future[WebSocket]" = field(default_factory=asyncio.Future)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    withdrawn: bool = False


class Relay:
    """The shells that callers have opened at this server. Used only by the event loop."""

    def __init__(self) -> None:
        self._open: dict[str, Shell] = {}

    def waiting(self, shell_id: str) -> Shell | None:
        """Return a shell whose worker has not come yet."""
        shell = self._open.get(shell_id)
        return None if shell is None or shell.worker.done() else shell

    async def serve(
        self, caller: WebSocket, ticket: Ticket, use: Callable[[], bool], call: Callable[[], object]
    ) -> None:
        """Connect an accepted caller with its worker until one of them leaves.

        Args:
            caller: the caller's side.
            ticket: what it may do.
            use: uses the ticket up, at all servers; False if it was used before. It blocks.
            call: calls the worker; it blocks.
        """
        try:
            async with asyncio.timeout(ORDER_S):
                order = await caller.receive_text()
            if digest(order) != ticket.order or not await run_in_threadpool(use):
                unfit = "the ticket is not for this"
                raise _refused(HTTPStatus.UNAUTHORIZED, "ticket_invalid", unfit)
            with self._opened(ticket) as shell:
                worker = await self._worker_of(shell, call)
                if worker is None:
                    await caller.send_text(NOBODY.text)
                    return
                await worker.send_text(order)
                await _pass_on(caller, worker)
                if shell.withdrawn:
                    await caller.send_text(WITHDRAWN.text)
        except Refused as error:
            news = ShellNews(code=error.code, message=error.message, hint=error.hint)
            with suppress(Exception):  # it may have left
                await caller.send_text(news.text)
        except (TimeoutError, WebSocketDisconnect):
            return
        finally:
            await close(caller)

    @contextmanager
    def _opened(self, ticket: Ticket) -> Iterator[Shell]:
        owners = Counter(relayed.ticket.owner for relayed in self._open.values())
        if len(self._open) >= MOST or owners[ticket.owner] >= MOST_OF_OWNER:
            raise _refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too_many_shells",
                f"{ticket.owner} has {counted(owners[ticket.owner], 'shell')} open at this server,"
                f" which has {len(self._open)} in all; the limits are {MOST_OF_OWNER} and {MOST}",
            )
        shell = self._open[ticket.id] = Shell(ticket)
        try:
            yield shell
        finally:
            del self._open[ticket.id]
            shell.worker.cancel()
            shell.over.set()

    async def _worker_of(self, shell: Shell, call: Callable[[], object]) -> WebSocket | None:
        until = monotonic() + CALL_S
        while monotonic() < until:
            await run_in_threadpool(call)
            done, _ = await asyncio.wait({shell.worker}, timeout=CALL_EVERY_S)
            if done:
                return shell.worker.result()
        return None


async def _pass_on(caller: WebSocket, worker: WebSocket) -> None:
    """Pass messages both ways until one side leaves, says nothing for long, or time is up."""
    heard_at = began = monotonic()

    async def pump(source: WebSocket, target: WebSocket) -> None:
        nonlocal heard_at
        while (message := await source.receive())["type"] == "websocket.receive":
            heard_at = monotonic()
            await target.send({**message, "type": "websocket.send"})

    pumps = {asyncio.create_task(pump(caller, worker)), asyncio.create_task(pump(worker, caller))}
    try:
        while True:
            now = monotonic()
            left_s = min(heard_at + IDLE_S, began + LONGEST_S) - now
            done, _ = await asyncio.wait(
                pumps, timeout=max(left_s, 0), return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                return
            if left_s <= 0:
                with suppress(Exception):
                    await caller.send_text(OVER.text)
                return
    finally:
        for each in pumps:
            each.cancel()
        # An error of a connection means that its side has left.
        await asyncio.gather(*pumps, return_exceptions=True)


async def close(socket: WebSocket) -> None:
    """Close a connection, which the other side may have closed already."""
    with suppress(Exception):
        await socket.close()


def _refused(status: HTTPStatus, code: str, message: str) -> Refused:
    return Refused(status, code, message, hint="close some, or run the command again")
