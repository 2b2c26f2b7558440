"""Bodies read from the socket in threads: by h11 and asyncio, each byte is copied five times more.

uvicorn does not know this either, so a connection without TLS offers it to its app.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

import h11
from fastapi.concurrency import run_in_threadpool
from h11._readers import ContentLengthReader
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

from forge_functions.middleware import requests

# Bytes at a time: of a thread, of a call, and those for which it is worth waking one.
STEP, PIECE, WORTH_WAKING = 4 << 20, 256 << 10, 1 << 20
Keep = Callable[[memoryview], None]


class UvicornConnection(Protocol):
    """A connection of uvicorn's."""

    conn: h11.Connection
    cycle: RequestResponseCycle
    flow: FlowControl
    transport: asyncio.Transport

    def handle_events(self) -> None: ...


class ReceivedBody:
    """The body of a connection's request."""

    def __init__(self, connection: UvicornConnection) -> None:
        self._connection = connection

    async def keep(self, keep: Keep, few_at_once: asyncio.Semaphore) -> bool:
        """Have all that is still to come kept in threads; False if that is for `receive` to read.

        Raises:
            ClientDisconnect: the client has gone.
            HTTPException: 408, no piece came in time.
        """
        connection = self._connection
        cycle = connection.cycle
        counted = connection.conn._reader  # noqa: SLF001 - h11 has no other word for it
        if (
            not isinstance(counted, ContentLengthReader)
            # Another version may count by another name.
            or not hasattr(counted, "_remaining")
            or cycle.waiting_for_100_continue
            or not cycle.more_body
        ):
            return False
        connection.flow.pause_reading()
        came, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        await run_in_threadpool(keep, memoryview(came))
        with connection.transport.get_extra_info("socket").dup() as line:
            try:
                await self._rest(line, counted, keep, few_at_once)
            finally:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        # h11 sees now that the body is complete.
        connection.handle_events()
        return True

    async def _rest(
        self,
        line: socket.socket,
        counted: ContentLengthReader,
        keep: Keep,
        few_at_once: asyncio.Semaphore,
    ) -> None:
        waited = False
        while left := counted._remaining:  # noqa: SLF001 - as above
            if self._connection.transport.is_closing():
                raise ClientDisconnect
            async with few_at_once:
                size = await run_in_threadpool(_some, line, min(STEP, left), keep)
            if not size and waited:
                raise requests.late()
            counted._remaining -= size  # noqa: SLF001 - as above
            if size < min(STEP, left):
                enough = min(WORTH_WAKING, left - size)
                waited = not await _comes(line, enough)


def _some(line: socket.socket, most: int, keep: Keep) -> int:
    """Keep what is there, and return its size."""
    size, piece = 0, memoryview(bytearray(min(PIECE, most)))
    while size < most:
        try:
            came = line.recv_into(piece[: most - size])
        except BlockingIOError:
            break
        except OSError as error:
            raise ClientDisconnect from error
        if not came:
            raise ClientDisconnect
        keep(piece[:came])
        size += came
    return size


async def _comes(line: socket.socket, enough: int) -> bool:
    """Wait until there is enough to read, or an end; False if it takes long, as of slow clients."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, enough)
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(line, ready.set)
    try:
        await asyncio.wait_for(ready.wait(), requests.PIECE_WITHIN_S)
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(line)
    return True
