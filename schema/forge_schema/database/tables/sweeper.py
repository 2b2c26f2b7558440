"""State that all sweepers share: ticks, outages, thinning, removed jobs, and rows set aside."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c


class Sweeper(SQLModel, table=True):
    """One row, made by the migration.

    A long time without a tick counts as an outage, in which workers could not renew either. The row
    survives a failover, and a restarted or replaced server leaves no other trace. `gap` is how long
    the last sweeper considers long; `gaps` counts consecutive ticks that came so late. `served_at`
    is when a server last reported, without which workers over HTTP cannot renew; `served_since` is
    since when there has always been one. `swept_at` is when a sweeper last completed a tick: until
    the next one is due, the others only watch. `counted_at` is when usage was last counted. Of the
    owners who had jobs running then, `level` is the median of their usage, and `pace` is how many
    GPUs they held, divided by their weights.
    """

    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: int = c.key_small()
    ticked_at: datetime | None = c.moment(null=True)
    gap: timedelta | None = c.span(null=True)
    holds_until: datetime | None = c.moment(null=True)
    gaps: int = c.small(default="0")
    served_at: datetime | None = c.moment(null=True)
    served_since: datetime | None = c.moment(null=True)
    swept_at: datetime | None = c.moment(null=True)
    counted_at: datetime | None = c.moment(null=True)
    level: float = c.number(default="0")
    pace: float = c.number(default="0")


class SetAside(SQLModel, table=True):
    """A row of the table `place` that no tick could move, for an operator to inspect and delete."""

    __tablename__ = "set_aside"

    id: int = c.identity()
    at: datetime = c.moment()
    place: str = c.string()
    job_id: int = c.big()
    error: str = c.string()
    content: dict[str, Any] = c.document()


class Tombstone(SQLModel, table=True):
    """A job that was removed and whose objects are still to be deleted."""

    job_id: int = c.key_big()
    removed_at: datetime = c.moment()


class Thinned(SQLModel, table=True):
    """Until when a table is thinned to one row per `width_s` seconds; made by the migration."""

    subject: str = c.key_string()
    width_s: int = c.key_integer()
    until: datetime = c.moment(default="'-infinity'")


class Identity(SQLModel, table=True):
    """One row, made by the migration. Tells queues apart whose workers share a machine.

    `store` is the URL under which a server has last used the queue's objects.
    """

    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: int = c.key_small()
    queue_id: UUID = c.uuid(default="gen_random_uuid()")
    store: str | None = c.string(null=True)
