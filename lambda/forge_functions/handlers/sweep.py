"""The scheduled function: a tick of the sweeper, a round of retention, and what is to be sent."""

import sys
from dataclasses import asdict
from functools import cache

import structlog
from forge_schema.database.pool import Database
from forge_schema.notifications.sender import DeliverySender
from forge_schema.program.log import configure_log
from forge_schema.queue.queue import Queue
from forge_schema.sweeper.retention import Retention
from forge_schema.sweeper.settings import SweeperSettings
from forge_schema.sweeper.tick import Tick
from pydantic import Field, PositiveFloat


class ScheduledSettings(SweeperSettings):
    """The sweeper's settings, with the period of the template's schedule."""

    sweep_s: PositiveFloat = Field(60.0, description="seconds between ticks")


@cache
def steps() -> tuple[Tick, Retention, DeliverySender]:
    """Return the tick, retention and the sender, whose connections stay open between invocations.

    Raises:
        DatabaseUnreachable: the database does not answer; the next invocation tries again.
    """
    configure_log("json", sys.stdout)
    settings = ScheduledSettings.model_validate({})
    database = Database(settings.database_url, size=2, prepare=settings.prepare).open()
    queue = Queue(database, actor="sweeper", ttl=settings.ttl)
    return settings.tick(queue), settings.retention(queue), DeliverySender(database)


def handler(_event: object, _context: object) -> dict[str, int]:
    """Tick once, send, remove what is old, and return how many rows each step moved."""
    tick, retention, sender = steps()
    moved = asdict(tick.run())
    sender.begin()
    moved |= {f"removed_{what}": count for what, count in asdict(retention.run()).items()}
    # Lambda halts every thread once this returns.
    sender.wait()
    structlog.get_logger(__name__).info("ticked", **moved)
    return moved
