"""procrastinate: its own worker."""

import asyncio
import os
from contextlib import suppress
from statistics import median
from time import perf_counter

import procrastinate  # type: ignore[import-not-found]  # of the peers' own environment

from benchmarks.peers.answering import answer, jobs_of_a_sweep

URL = os.environ["PEERS_URL"]
# It fetches one job at a time, so more at once is all it has instead of batches.
AT_ONCE = {"one": 1, "sixteen": 16, "best": 32}

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL, max_size=40))
heard: asyncio.Queue[float] = asyncio.Queue()
counted = {"done": 0}


async def bench(**body: object) -> None:  # noqa: ARG001  what it is called with
    counted["done"] += 1
    heard.put_nowait(perf_counter())


task = app.task(name="bench")(bench)


async def prepare() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def enqueue(jobs: int, size: int) -> float:
    async with app.open_async():
        bodies = jobs_of_a_sweep(jobs)
        began = perf_counter()
        for start in range(0, jobs, size):
            await task.batch_defer_async(*bodies[start : start + size])
        return perf_counter() - began


async def drain(mode: str) -> list[float]:
    counted["done"] = 0
    async with app.open_async():
        began = perf_counter()
        await app.run_worker_async(
            concurrency=AT_ONCE[mode], wait=False, install_signal_handlers=False
        )
        return [counted["done"], perf_counter() - began]


async def dispatch(times: int) -> float:
    async with app.open_async():
        running = asyncio.create_task(app.run_worker_async(install_signal_handlers=False))
        await asyncio.sleep(1)
        while not heard.empty():
            heard.get_nowait()
        found = []
        for _ in range(times):
            began = perf_counter()
            await task.defer_async(**jobs_of_a_sweep(1)[0])
            found.append(await heard.get() - began)
            await asyncio.sleep(0.05)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    return 1000 * median(found)


if __name__ == "__main__":
    answer({"prepare": prepare, "enqueue": enqueue, "drain": drain, "dispatch": dispatch})
