"""The scheduled function: one sweep."""

import sys
from dataclasses import asdict
from functools import cache

import structlog
from forge_schema.database.pool import Database
from forge_schema.log import configure_log
from forge_schema.queue.queue import Queue
from forge_schema.sweeper.settings import SweepSettings
from forge_schema.sweeper.tick import Sweep
from pydantic import Field, PositiveFloat


class ScheduledSettings(SweepSettings):
    """As the template schedules it."""

    sweep_s: PositiveFloat = Field(60.0, description="seconds between sweeps")


@cache
def sweep() -> Sweep:
    """Return the sweep, whose connections outlast an invocation.

    Raises:
        DatabaseUnreachable: the database does not answer; the next invocation tries again.
    """
    configure_log("json", sys.stdout)
    settings = ScheduledSettings.model_validate({})
    database = Database(settings.database_url, size=1, prepare=settings.prepare).open()
    queue = Queue(database, actor="sweeper", ttl=settings.ttl)
    return settings.sweep(queue)


def handler(_event: object, _context: object) -> dict[str, int]:
    """Sweep once, and return how many of each were moved."""
    swept = asdict(sweep().tick())
    structlog.get_logger(__name__).info("swept", **swept)
    return swept
