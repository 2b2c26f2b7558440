"""pgqueuer: its own worker."""

import asyncio
import json
import os
from datetime import timedelta
from statistics import median
from time import perf_counter

import asyncpg  # type: ignore[import-not-found]  # of the peers' own environment
import pgqueuer  # type: ignore[import-not-found]  # of the peers' own environment
from pgqueuer.types import (  # type: ignore[import-not-found]  # as above
    QueueExecutionMode,
)

from benchmarks.peers.answering import answer, jobs_of_a_sweep

URL = os.environ["PEERS_URL"]
# Batch size, and how many run at once: it wants twice the batch there, and has a limit beside it.
MODES = {"one": (1, 2, 1), "sixteen": (8, 16, 16), "best": (100, 200, 200)}
SHORT = timedelta(seconds=0.5)


async def prepare() -> None:
    connection = await asyncpg.connect(URL)
    await pgqueuer.Queries.from_asyncpg_connection(connection).install()
    await connection.close()


async def enqueue(jobs: int, size: int) -> float:
    connection = await asyncpg.connect(URL)
    queries = pgqueuer.Queries.from_asyncpg_connection(connection)
    bodies = jobs_of_a_sweep(jobs)
    began = perf_counter()
    for start in range(0, jobs, size):
        part = [json.dumps(body).encode() for body in bodies[start : start + size]]
        await queries.enqueue(["bench"] * len(part), part, [0] * len(part))
    took = perf_counter() - began
    await connection.close()
    return took


async def drain(mode: str) -> list[float]:
    batch, picked, at_once = MODES[mode]
    connection = await asyncpg.connect(URL)
    worker = pgqueuer.PgQueuer.from_asyncpg_connection(connection)
    done = 0
    last = began = perf_counter()

    async def bench(job: pgqueuer.Job) -> None:  # noqa: ARG001  what it is called with
        nonlocal done, last
        done += 1
        last = perf_counter()

    worker.entrypoint("bench", concurrency_limit=at_once)(bench)
    began = perf_counter()
    await worker.qm.run(
        dequeue_timeout=SHORT,
        batch_size=batch,
        mode=QueueExecutionMode.drain,
        max_concurrent_tasks=picked,
    )
    await connection.close()
    # Its shutdown takes a while that is not work.
    return [done, last - began]


async def dispatch(times: int) -> float:
    connection, other = await asyncpg.connect(URL), await asyncpg.connect(URL)
    worker = pgqueuer.PgQueuer.from_asyncpg_connection(connection)
    queries = pgqueuer.Queries.from_asyncpg_connection(other)
    heard: asyncio.Queue[float] = asyncio.Queue()

    async def bench(job: pgqueuer.Job) -> None:  # noqa: ARG001  what it is called with
        heard.put_nowait(perf_counter())

    worker.entrypoint("bench")(bench)
    running = asyncio.create_task(worker.qm.run())
    await asyncio.sleep(1)
    found = []
    for _ in range(times):
        began = perf_counter()
        await queries.enqueue("bench", json.dumps(jobs_of_a_sweep(1)[0]).encode())
        found.append(await heard.get() - began)
        await asyncio.sleep(0.05)
    worker.qm.shutdown.set()
    await running
    await connection.close()
    await other.close()
    return 1000 * median(found)


if __name__ == "__main__":
    answer({"prepare": prepare, "enqueue": enqueue, "drain": drain, "dispatch": dispatch})
