"""The two ways in which simulated workers speak to the queue, many over few connections."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Protocol, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import psycopg
from forge_schema.database.pool import Database
from forge_schema.model.lease import End, Fence
from forge_schema.model.states import Reason, WorkerStatus
from forge_schema.protocol import messages
from forge_schema.protocol.answers import Claimed
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.queue import LEASE_TTL, Queue
from forge_schema.sweeper.sweeper import Sweeper
from forge_schema.sweeper.tick import Tick
from forge_schema.wake import ASKED, Hint, Sleepers

from benchmarks.fleet.world import Simulated

# What a process of the simulator holds; a real fleet's connections are computed.
CLAIMERS, RENEWERS = 8, 2
SWEEP_S = 10.0
TIMEOUT = httpx.Timeout(120.0)
WORKERS_PATH = "/api/v1/workers"
CONDITION = {
    "cpu_percent": 12.5,
    "memory_percent": 40.1,
    "memory_free_mb": 40_000,
    "disk_free_mb": 400_000,
    "constrained": False,
}

T = TypeVar("T")


class Transport(Protocol):
    """What a worker does."""

    async def beat(self, worker: Simulated) -> None:
        """Renew its lease."""

    async def claim(self, worker: Simulated, done: Fence | None, *, hinted: bool) -> Fence | None:
        """Report a success, if any, and look for a job."""

    async def tick(self) -> None:
        """Sweep, where workers do."""


class Direct:
    """SQL, through the queue's own verbs."""

    def __init__(self, url: str) -> None:
        self._claims = Database(url, size=CLAIMERS, patience_s=120).open()
        self._renewals = Database(url, size=RENEWERS, patience_s=120).open()
        self._claimers = ThreadPoolExecutor(CLAIMERS)
        self._renewers = ThreadPoolExecutor(RENEWERS)
        self._queue = Queue(self._claims, actor="worker:fleet", ttl=LEASE_TTL)
        self._beats = Queue(self._renewals, actor="worker:fleet", ttl=LEASE_TTL)
        self.sleepers = Sleepers()
        self._lanes: dict[int, Lanes] = {}
        self._sweeper = Sweeper(Tick(Queue(self._claims, actor="sweeper")), period_s=SWEEP_S)

    async def beat(self, worker: Simulated) -> None:
        await _threaded(self._renewers, lambda: self._beat(worker))

    async def claim(self, worker: Simulated, done: Fence | None, *, hinted: bool) -> Fence | None:
        return await _threaded(self._claimers, lambda: self._look(worker, done, hinted=hinted))

    async def tick(self) -> None:
        await _threaded(self._renewers, self._sweeper.tick)

    def close(self) -> None:
        self._claimers.shutdown(cancel_futures=True)
        self._renewers.shutdown(cancel_futures=True)
        self._claims.close()
        self._renewals.close()

    def _beat(self, worker: Simulated) -> None:
        held = [worker.fence] if worker.fence else []
        status = WorkerStatus.BUSY if held else WorkerStatus.IDLE
        self._beats.renew(worker.id, worker.boot_id, held, status, CONDITION)

    def _look(self, worker: Simulated, done: Fence | None, *, hinted: bool) -> Fence | None:
        # A worker keeps its lanes for two seconds, which most looks are apart. Kept here for all of
        # those with a GPU at once, which serve all lanes, they would take gigabytes.
        lanes = self._lanes.pop(worker.id, None) or Lanes(self._claims, worker.id)
        lanes.forget()
        if not worker.has_gpu:
            self._lanes[worker.id] = lanes
        if hinted:
            lanes.doubt()
        ends = [End(done, Reason.SUCCEEDED, 0)] if done else []
        self.sleepers.looks(worker.id, worker.room)
        _, grants = self._queue.finish_and_claim(ends, lanes, worker.room)
        self.sleepers.looked(self._claims, worker.id, worker.room, has_jobs=bool(grants))
        return grants[0].fence if grants else None


class OverHttp:
    """JSON to a server."""

    def __init__(self, base: str) -> None:
        self._client = httpx.AsyncClient(base_url=base, timeout=TIMEOUT)
        # The client itself is slow to lend connections where thousands wait for one.
        self._claiming = asyncio.Semaphore(CLAIMERS)
        # Heartbeats have their own connections, as in a worker.
        self._renewing = asyncio.Semaphore(RENEWERS)

    async def beat(self, worker: Simulated) -> None:
        held = [worker.fence] if worker.fence else []
        body = messages.Heartbeat.model_validate(
            {
                "boot_id": worker.boot_id,
                "status": WorkerStatus.BUSY if held else WorkerStatus.IDLE,
                "leases": held,
                "condition": CONDITION,
            }
        )
        async with self._renewing:
            await _post(self._client, worker, "/heartbeat", body)

    async def claim(self, worker: Simulated, done: Fence | None, *, hinted: bool) -> Fence | None:
        ends = [] if done is None else [messages.Finished(**asdict(done))]
        body = messages.Claim(
            boot_id=worker.boot_id, ends=ends, free=worker.room, hinted=hinted, nonce=uuid4()
        )
        async with self._claiming:
            answer = await _post(self._client, worker, "/claim", body)
        grants = Claimed.model_validate_json(answer.content).grants
        return grants[0].fence if grants else None

    async def tick(self) -> None:
        """Nothing: over HTTP no worker sweeps."""

    async def close(self) -> None:
        await self._client.aclose()


async def hear_database(url: str, heard: Callable[[Hint], None]) -> None:
    """Call back at every hint of work; one connection for all workers of this process."""
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    async with connection:
        await connection.execute("LISTEN forge")
        async for hint in connection.notifies():
            said = Hint.read(hint.payload)
            if said.kind != ASKED:
                heard(said)


@asynccontextmanager
async def streams(
    base: str, fleet: Sequence[Simulated], heard: Callable[[int], None]
) -> AsyncIterator[None]:
    """Hold the stream of hints of every worker open."""
    opening = asyncio.Semaphore(20)
    opened = [asyncio.Event() for _ in fleet]
    tasks = [
        asyncio.create_task(_stream(base, one, heard, opening, its))
        for one, its in zip(fleet, opened, strict=True)
    ]
    try:
        for its in opened:
            await its.wait()
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stream(
    base: str,
    worker: Simulated,
    heard: Callable[[int], None],
    opening: asyncio.Semaphore,
    opened: asyncio.Event,
) -> None:
    place = urlsplit(base)
    head = (
        f"GET {WORKERS_PATH}/stream?wait_s=20 HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"X-Worker-Token: {worker.token}\r\nAccept: text/event-stream\r\n\r\n"
    )
    try:
        async with opening:
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            writer.write(head.encode())
            status = await reader.readline()
            assert b" 200 " in status, f"a stream was refused: {status!r}"
            await reader.readuntil(b": hello\n\n")
    finally:
        opened.set()
    try:
        while line := await reader.readline():
            if line.startswith(b"event: ready"):
                heard(worker.id)
    finally:
        writer.close()


async def _threaded(threads: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, call)


async def _post(
    client: httpx.AsyncClient, worker: Simulated, path: str, body: messages.Body
) -> httpx.Response:
    answer = await client.post(
        f"{WORKERS_PATH}{path}",
        content=body.model_dump_json(),
        headers={"X-Worker-Token": worker.token, "Content-Type": "application/json"},
    )
    return answer.raise_for_status()
