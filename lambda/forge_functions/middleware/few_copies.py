"""Bodies received in threads and files sent by the kernel: asyncio would copy each byte often.

By h11 and asyncio, a body's bytes are copied five times more. uvicorn knows neither this nor ASGI's
extension for files, so a connection without TLS offers both to its app. The extension's message has
one word more, `few_at_once`: a semaphore, since threads wait for the disk.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, cast

import h11
from fastapi.concurrency import run_in_threadpool
from h11._readers import ContentLengthReader
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

from forge_functions.bodies import RECEIVED, ZERO_COPY
from forge_functions.middleware import requests

# Bytes at a time: of a thread, of a call, and those for which it is worth waking one.
STEP, PIECE, WORTH_WAKING = 4 << 20, 256 << 10, 1 << 20
Keep = Callable[[memoryview], None]
# Some file systems cannot.
UNABLE = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS}


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
                size = await run_in_threadpool(_received_some, line, min(STEP, left), keep)
            if not size and waited:
                raise requests.late()
            counted._remaining -= size  # noqa: SLF001 - as above
            if size < min(STEP, left):
                enough = min(WORTH_WAKING, left - size)
                waited = not await _comes(line, enough)


def _received_some(line: socket.socket, most: int, keep: Keep) -> int:
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


class SendingConnection(UvicornConnection, Protocol):
    """One that says whether it has TLS."""

    @property
    def scheme(self) -> str | None: ...


class Stretch:
    """So many bytes of a file, which h11 counts and does not see."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


class SendingFiles:
    """Plain ASGI middleware around the app of one connection."""

    def __init__(self, app: ASGIApp, connection: SendingConnection) -> None:
        self._app, self._connection = app, connection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == ZERO_COPY:
                await self._send_file(message)
                message = {"type": "http.response.body"}
            await send(message)

        if self._connection.scheme == "http":
            own = {ZERO_COPY: {}, RECEIVED: ReceivedBody(self._connection)}
            scope.setdefault("extensions", {}).update(own)
        await self._app(scope, receive, sending)

    async def _send_file(self, message: Message) -> None:
        connection = self._connection
        transport = connection.transport
        # What was written before goes first.
        transport.set_write_buffer_limits(high=0)
        await connection.flow.drain()
        transport.set_write_buffer_limits()
        if transport.is_closing():
            return
        data = cast("bytes", Stretch(message["count"]))
        connection.conn.send_with_data_passthrough(h11.Data(data=data))
        line = os.dup(transport.get_extra_info("socket").fileno())
        try:
            await _sent(transport, line, message)
        except (OSError, EOFError):
            # The client has gone, or the file is shorter now: the answer will not be complete.
            transport.abort()
        finally:
            os.close(line)


async def _sent(transport: asyncio.Transport, line: int, message: Message) -> None:
    file, count, done = message["file"].fileno(), message["count"], 0
    while done < count and not transport.is_closing():
        async with message["few_at_once"]:
            step = await run_in_threadpool(_sent_some, line, file, done, min(STEP, count - done))
        if step is None:
            await _room(line)
        elif step:
            done += step
        else:
            raise EOFError


def _sent_some(line: int, file: int, offset: int, count: int) -> int | None:
    """Send what the socket takes; None if that is nothing now."""
    try:
        return os.sendfile(line, file, offset, count)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno not in UNABLE:
            raise
    with suppress(BlockingIOError):
        return os.write(line, os.pread(file, min(PIECE, count), offset))
    return None


async def _room(line: int) -> None:
    """Wait until the socket takes more, or has failed."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(line, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_writer(line)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
