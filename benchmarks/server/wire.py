"""HTTP/1.1 on plain sockets: cheaper for a load generator than any client library."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlsplit

STREAM = "/api/v1/workers/stream?wait_s=20"


@dataclass(frozen=True)
class Answer:
    """A status, 0 if the connection broke, and a body."""

    status: int
    body: bytes = b""


BROKEN = Answer(0)


async def connect(
    base: str, address: str = "127.0.0.1", limit: int = 1 << 20
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection to a server from an address of this machine.

    Up to twice `limit` bytes are read ahead.

    Raises:
        OSError: it does not take it.
    """
    place = urlsplit(base)
    return await asyncio.open_connection(
        place.hostname,
        place.port,
        limit=limit,
        local_addr=(address, 0),
        ssl=_any_certificate() if place.scheme == "https" else None,
    )


@cache
def _any_certificate() -> ssl.SSLContext:
    """A proxy of a benchmark has a certificate that nobody else knows."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


class Wire:
    """Connections that are kept; each carries one request at a time."""

    def __init__(self, base: str, address: str = "127.0.0.1") -> None:
        self.base, self._address = base, address
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None = None
    ) -> Answer:
        """Send a request and return its answer, or `BROKEN`."""
        with suppress(OSError, asyncio.IncompleteReadError, ValueError):
            reader, writer = await self._taken()
            try:
                writer.write(head(method, path, headers, body) + (body or b""))
                answer, kept = await _answer(reader)
            except BaseException:
                writer.transport.abort()
                raise
            if kept:
                self._free.append((reader, writer))
            else:
                writer.transport.abort()
            return answer
        return BROKEN

    async def _taken(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._free:
            reader, writer = self._free.pop()
            # One that the server has closed is not used, as by any client library.
            if not reader.at_eof() and reader.exception() is None:
                return reader, writer
        return await connect(self.base, self._address)

    def close(self) -> None:
        """Close the connections."""
        for _, writer in self._free:
            writer.transport.abort()
        self._free.clear()


def head(method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> bytes:
    """Return the head of a request."""
    said = {"Host": "forge"}
    if body is not None:
        said |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    said |= headers
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def _answer(reader: asyncio.StreamReader) -> tuple[Answer, bool]:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = text.strip().split("\r\n")
    said = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
    body = await reader.readexactly(int(said.get("content-length", "0")))
    return Answer(int(first.split()[1]), body), said.get("connection") != "close"


async def hear(
    base: str, token: str, heard: Callable[[bytes], None], address: str = "127.0.0.1"
) -> None:
    """Hold a worker's stream of hints until it ends, and pass on each line.

    Raises:
        OSError: the server does not take it, or it broke.
    """
    reader, writer = await connect(base, address)
    try:
        asks = {"X-Worker-Token": token, "Accept": "text/event-stream"}
        writer.write(head("GET", STREAM, asks))
        if b" 200 " not in await reader.readline():
            raise ConnectionRefusedError
        while line := await reader.readline():
            heard(line)
    finally:
        writer.transport.abort()
