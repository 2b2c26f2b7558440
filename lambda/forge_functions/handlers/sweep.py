"""The scheduled function: one tick of the sweeper."""

import sys
from dataclasses import asdict
from functools import cache

import structlog
from forge_schema.database.pool import Database
from forge_schema.log import configure_log
from forge_schema.queue.queue import Queue
from forge_schema.sweeper.settings import SweeperSettings
from forge_schema.sweeper.tick import Tick
from pydantic import Field, PositiveFloat


class ScheduledSettings(SweeperSettings):
    """The sweeper's settings, with the period of the template's schedule."""

    sweep_s: PositiveFloat = Field(60.0, description="seconds between ticks")


@cache
def tick() -> Tick:
    """Return the tick, whose connections stay open between invocations.

    Raises:
        DatabaseUnreachable: the database does not answer; the next invocation tries again.
    """
    configure_log("json", sys.stdout)
    settings = ScheduledSettings.model_validate({})
    database = Database(settings.database_url, size=1, prepare=settings.prepare).open()
    queue = Queue(database, actor="sweeper", ttl=settings.ttl)
    return settings.tick(queue)


def handler(_event: object, _context: object) -> dict[str, int]:
    """Tick once and return how many rows each step moved."""
    moved = asdict(tick().run())
    structlog.get_logger(__name__).info("ticked", **moved)
    return moved
