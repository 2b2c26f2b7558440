"""chancy: its own worker, with its default plugins at short intervals."""

import asyncio
import logging
import os
import sys

from chancy import Chancy, Queue, Worker  # type: ignore[import-not-found]  # of the peers' own
from chancy.job import Job  # type: ignore[import-not-found]  # of the peers' own environment
from chancy.plugins.leadership import Leadership  # type: ignore[import-not-found]  # as above
from chancy.plugins.recovery import Recovery  # type: ignore[import-not-found]  # as above

from benchmarks.zombie import handler

LIMIT_S = int(os.environ["ZOMBIE_LIMIT_S"])


def chancy() -> Chancy:
    plugins = [Leadership(poll_interval=1, timeout=LIMIT_S), Recovery(poll_interval=1)]
    return Chancy(os.environ["ZOMBIE_URL"], plugins=plugins)


async def prepare() -> None:
    async with chancy() as queue:
        await queue.migrate()
        await queue.declare(Queue("zombie", concurrency=1, polling_interval=1))
        await queue.push(Job.from_func(handler.wait_here, queue="zombie"))


async def work() -> None:
    async with (
        chancy() as queue,
        Worker(queue, heartbeat_poll_interval=1, heartbeat_timeout=LIMIT_S) as worker,
    ):
        await worker.wait_for_shutdown()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run({"prepare": prepare, "work": work}[sys.argv[1]]())
