"""procrastinate: its own worker, with the periodic task of its page “Retry stalled jobs”."""

import asyncio
import logging
import os
import sys
from typing import Any

import procrastinate  # type: ignore[import-not-found]  # of the peers' own environment

from benchmarks.zombie import handler

LIMIT_S = float(os.environ["ZOMBIE_LIMIT_S"])

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["ZOMBIE_URL"]))
zombie = app.task(name="zombie")(handler.wait)


async def retry_stalled_jobs(context: Any, timestamp: int) -> None:  # noqa: ANN401, ARG001  its own
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=LIMIT_S):
        await app.job_manager.retry_job(job)


# Every second, where the page has it every ten minutes.
app.periodic(cron="* * * * * *")(
    app.task(queueing_lock="retry_stalled_jobs", pass_context=True)(retry_stalled_jobs)
)


async def prepare() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await zombie.defer_async()


async def work() -> None:
    async with app.open_async():
        await app.run_worker_async(
            # One for the job, one for the periodic task.
            concurrency=2,
            fetch_job_polling_interval=0.5,
            update_heartbeat_interval=LIMIT_S / 5,
            stalled_worker_timeout=LIMIT_S,
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run({"prepare": prepare, "work": work}[sys.argv[1]]())
