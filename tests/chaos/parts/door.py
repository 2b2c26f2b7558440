"""A proxy between processes that may delay, refuse, silence, or lose an answer.

One thread and one event loop serve all proxies of a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

CHUNK = 1 << 16
# A prepared statement's name, a request's first line, or the start of an unprepared statement.
VERB = re.compile(
    rb"forge_([a-z_]+)_\d+\0"
    rb"|(?:GET|POST|PUT|DELETE) (/[a-z/]+)"
    rb"|P..(?:..)?\0((?:-- )?[A-Za-z ]{4,40})",
    re.DOTALL,
)
# The start of a connection names no verb: a Postgres client's startup messages, then our own.
BEGINNING = re.compile(rb"^....\x00\x03\x00\x00|^....\x04\xd2\x16|SET statement_timeout", re.DOTALL)


@dataclass
class Passing:
    """A connection: both ends, and the last request that has not been answered."""

    ends: list[asyncio.StreamWriter]
    asked: bytes = b""

    def cut(self) -> None:
        for end in self.ends:
            end.transport.abort()


@dataclass
class Door:
    """Forwards to a port of this machine.

    `delay_s` delays each chunk, and `bytes_per_s` limits each direction. Of exchanges, the fraction
    `loses_answers` is cut after the server acted, `loses_requests` before. While `silent`, traffic
    stops without an error; data sent meanwhile arrives afterwards.
    """

    name: str
    target: int
    dice: Random
    port: int = 0
    delay_s: float = 0.0
    bytes_per_s: float = 0.0
    loses_answers: float = 0.0
    loses_requests: float = 0.0
    open: bool = True
    silent: bool = False
    lost: Counter[str] = field(default_factory=Counter)
    passing: list[Passing] = field(default_factory=list)
    server: asyncio.Server | None = None

    async def serve(self) -> None:
        """Accept connections."""
        listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = listening.getsockname()[1]
        self.server = await asyncio.start_server(self._came, sock=listening)

    def shut(self) -> None:
        """Refuse connections, and break the existing ones."""
        if self.server is not None:
            self.server.close()
        for passing in list(self.passing):
            passing.cut()

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passing = Passing([writer])
        self.passing.append(passing)
        try:
            await self._while_silent()
            if self.open:
                there, back = await asyncio.open_connection("127.0.0.1", self.target)
                passing.ends.append(back)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._asks(passing, reader, back))
                    group.create_task(self._answers(passing, there, writer))
        except (OSError, ExceptionGroup):
            pass
        finally:
            passing.cut()
            self.passing.remove(passing)

    async def _asks(
        self, passing: Passing, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        while data := await source.read(CHUNK):
            await self._held_up(data)
            begins = BEGINNING.search(data) is not None
            if not passing.asked and not begins and self.dice.random() < self.loses_requests:
                self._lose("request", data)
                break
            passing.asked = b"" if begins else data
            sink.write(data)
            await sink.drain()
        passing.cut()

    async def _answers(
        self, passing: Passing, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        while data := await source.read(CHUNK):
            if passing.asked and self.dice.random() < self.loses_answers:
                self._lose("answer", passing.asked)
                break
            passing.asked = b""
            await self._held_up(data)
            sink.write(data)
            await sink.drain()
        passing.cut()

    async def _held_up(self, data: bytes) -> None:
        slow_s = len(data) / self.bytes_per_s if self.bytes_per_s else 0.0
        if self.delay_s or slow_s:
            await asyncio.sleep(self.delay_s + slow_s)
        await self._while_silent()

    async def _while_silent(self) -> None:
        # Setting an event would have to happen from another thread.
        while self.silent:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    def _lose(self, what: str, asked: bytes) -> None:
        found = VERB.search(asked)
        verb = (found[1] or found[2] or found[3]).decode() if found else "another"
        self.lost[f"{what} to {verb}"] += 1

    def heal(self) -> None:
        """Let everything pass again, immediately."""
        self.delay_s = self.bytes_per_s = self.loses_answers = self.loses_requests = 0.0
        self.open, self.silent = True, False


class Doors:
    """All proxies of a run, and the thread that serves them."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._loop = asyncio.new_event_loop()
        self.all: list[Door] = []

    def make(self, name: str, target: int) -> Door:
        """Open a proxy to a port of this machine."""
        door = Door(name, target, self._dice)
        asyncio.run_coroutine_threadsafe(door.serve(), self._loop).result(60)
        self.all.append(door)
        return door

    def cut(self, door: Door) -> None:
        """Break all open connections."""

        def now() -> None:
            for passing in list(door.passing):
                passing.cut()

        self._loop.call_soon_threadsafe(now)

    def lead(self, door: Door, target: int) -> None:
        """Point a proxy at another port; open connections break."""
        door.target = target
        self.cut(door)

    def serve(self) -> None:
        """Serve until `end` is called."""
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._shut())
        self._loop.close()

    async def _shut(self) -> None:
        for door in self.all:
            door.heal()
            door.shut()
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=60)
        # Aborted connections are closed in the loop's next iterations.
        await asyncio.sleep(0.1)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)


@contextlib.contextmanager
def doors(dice: Random) -> Iterator[Doors]:
    """Serve proxies while the block runs."""
    made = Doors(dice)
    thread = threading.Thread(target=made.serve, name="doors", daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.end()
        thread.join(60)
