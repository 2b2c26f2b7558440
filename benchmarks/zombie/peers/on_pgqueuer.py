"""pgqueuer: its own worker, with a short `heartbeat_timeout`."""

import asyncio
import logging
import os
import sys
from datetime import timedelta

import asyncpg  # type: ignore[import-not-found]  # of the peers' own environment
import pgqueuer  # type: ignore[import-not-found]  # of the peers' own environment

from benchmarks.zombie import handler

LIMIT = timedelta(seconds=float(os.environ["ZOMBIE_LIMIT_S"]))


async def prepare() -> None:
    connection = await asyncpg.connect(os.environ["ZOMBIE_URL"])
    queries = pgqueuer.Queries.from_asyncpg_connection(connection)
    await queries.install()
    await queries.enqueue("zombie", None)
    await connection.close()


async def work() -> None:
    connection = await asyncpg.connect(os.environ["ZOMBIE_URL"])
    worker = pgqueuer.PgQueuer.from_asyncpg_connection(connection)

    async def zombie(job: pgqueuer.Job) -> None:  # noqa: ARG001  what it is called with
        await handler.wait()

    worker.entrypoint("zombie")(zombie)
    await worker.run(dequeue_timeout=timedelta(seconds=0.5), heartbeat_timeout=LIMIT)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run({"prepare": prepare, "work": work}[sys.argv[1]]())
