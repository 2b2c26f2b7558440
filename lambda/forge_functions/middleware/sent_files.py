"""Files sent by the kernel: as pieces, each byte would be copied by Python, its parser and asyncio.

uvicorn does not know ASGI's extension for that, so a connection without TLS offers it here. Its
message has one word more, `few_at_once`: a semaphore, since threads wait for the disk.
"""

import asyncio
import errno
import os
from contextlib import suppress
from typing import Protocol, cast

import h11
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forge_functions.bodies import RECEIVED, ZERO_COPY
from forge_functions.middleware.received_bodies import ReceivedBody, UvicornConnection

# Bytes at a time; a socket's buffer rarely takes more.
STEP = 4 << 20
# Some file systems cannot.
UNABLE, PIECE = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS}, 256 << 10


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
            step = await run_in_threadpool(_some, line, file, done, min(STEP, count - done))
        if step is None:
            await _room(line)
        elif step:
            done += step
        else:
            raise EOFError


def _some(line: int, file: int, offset: int, count: int) -> int | None:
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
