"""Sieges: cheap things that a stranger, or one caller, does for as long as they like.

Each yields nothing, and goes on until it is cancelled.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from uuid import uuid4

from benchmarks.server.attacks import CHECK, FLOOD, REPORT, Headers, Site, own
from benchmarks.server.scenery import Scenery
from benchmarks.server.wire import Wire, connect, head

SLOW_HEADS, SLOW_BODIES, READERS, BODIES, STORMS, PREVIEWS = 300, 300, 100, 8, 8, 20
UNKNOWN = 150_000
READ_EVERY_S = 0.5
HALF = b"GET /health HTTP/1.1\r\nHost: forge\r\nX-Slow: "
# Another address than that of a worker or of a trusted proxy.
STRANGER = "127.0.0.3"
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": KEY,
}
Siege = Callable[[Site, Scenery], Coroutine[None, None, None]]


async def slow_heads(site: Site, _scenery: Scenery) -> None:
    """A stranger sends heads in drops."""
    await _all(SLOW_HEADS, lambda _: _drops(site, HALF))


async def slow_bodies(site: Site, _scenery: Scenery) -> None:
    """A stranger announces bodies, each with other credentials, and sends them in drops."""
    places = (
        ("GET", "/api/v1/queue/jobs"),
        ("POST", "/login"),
        ("POST", "/login/terminal/key"),
        ("POST", CHECK),
        ("GET", REPORT),
        ("POST", "/jobs/cancel"),
    )

    def one(number: int) -> Awaitable[None]:
        method, path = places[number % len(places)]
        said = {"Authorization": f"Bearer {number}", "Content-Length": "100000"}
        return _drops(site, head(method, path, said))

    await _all(SLOW_BODIES, one)


async def handshakes(site: Site, _scenery: Scenery) -> None:
    """A stranger begins WebSockets without a ticket, one after the other."""

    async def one(_number: int) -> None:
        async with connected(site) as (reader, writer):
            writer.write(head("GET", "/api/v1/queue/shells", UPGRADE))
            await reader.read(100)

    await _all(20, one)


async def slow_readers(site: Site, scenery: Scenery) -> None:
    """Holders of a signed URL of a file of 256 MiB read it slowly."""

    async def one(_number: int) -> None:
        async with connected(site) as (reader, writer):
            writer.write(head("GET", scenery.large, {}))
            piece = b"."
            while piece:
                piece, _ = await asyncio.gather(reader.read(1 << 10), asyncio.sleep(READ_EVERY_S))

    await _all(READERS, one)


async def reports(site: Site, _scenery: Scenery) -> None:
    """A viewer asks for reports without end."""
    await _asking(site, FLOOD, "GET", REPORT, who=site.users["bob"])


async def large_bodies(site: Site, _scenery: Scenery) -> None:
    """A viewer sends bodies of 2 MB with unknown keys without end."""
    body = json.dumps({"jobs": [{f"k{n}": 1 for n in range(UNKNOWN)}]}).encode()
    await _asking(site, BODIES, "POST", CHECK, who=site.users["bob"], body=body)


async def previews(site: Site, scenery: Scenery) -> None:
    """A visitor opens pages of files that are small, and large once they are rendered."""
    await _asking(site, PREVIEWS, "GET", scenery.bomb, who=scenery.visitor)


async def registrations(site: Site, _scenery: Scenery) -> None:
    """A worker registers a new boot without end."""
    worker = site.fleet[1]

    async def one(way: Wire) -> None:
        said = {"boot_id": str(uuid4()), "cpus": 8, "memory_mb": 1 << 16, "disk_mb": 1 << 18}
        path = "/api/v1/workers/register"
        await way.ask("POST", path, own(worker), json.dumps(said).encode())

    with _wires(site, STORMS) as wires:
        await _all(STORMS, lambda number: one(wires[number]))


async def _asking(
    site: Site, callers: int, method: str, path: str, *, who: Headers, body: bytes | None = None
) -> None:
    with _wires(site, callers) as wires:

        async def one(number: int) -> None:
            answer = await wires[number].ask(method, path, who, body)
            if answer.status in {0, 429, 503}:
                # As an impatient program does, not as Retry-After says.
                await asyncio.sleep(0.2)

        await _all(callers, one)


@contextmanager
def _wires(site: Site, count: int) -> Iterator[list[Wire]]:
    wires = [Wire(site.entrance, STRANGER) for _ in range(count)]
    try:
        yield wires
    finally:
        for one in wires:
            one.close()


async def _all(count: int, one: Callable[[int], Awaitable[None]]) -> None:
    """Do something again and again, as often at once as said."""

    async def again(number: int) -> None:
        while True:
            with suppress(OSError):
                await one(number)
            await asyncio.sleep(0.01)

    await asyncio.gather(*(again(number) for number in range(count)))


async def _drops(site: Site, beginning: bytes) -> None:
    """Send a request in drops until the server hangs up."""
    async with connected(site) as (reader, writer):
        writer.write(beginning)
        while True:
            try:
                async with asyncio.timeout(2):
                    if not await reader.read(1000):
                        break
            except TimeoutError:
                writer.write(b"x")


@asynccontextmanager
async def connected(site: Site) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Hold a connection while the block runs.

    Raises:
        OSError: it broke.
    """
    # Whoever reads slowly does not read ahead either.
    reader, writer = await connect(site.entrance, STRANGER, 1 << 14)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


SIEGES: dict[str, Siege] = {
    "slow heads": slow_heads,
    "slow bodies": slow_bodies,
    "handshakes": handshakes,
    "slow readers": slow_readers,
    "reports": reports,
    "large bodies": large_bodies,
    "previews": previews,
    "registrations": registrations,
}
