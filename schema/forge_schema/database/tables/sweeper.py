"""The sweepers' common memory: the last tick, until when all hold off, what is thinned or aside."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import CheckConstraint
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c


class Sweeper(SQLModel, table=True):
    """One row, made by the migration.

    A long time without a tick was an outage, in which workers could not renew either; a failover
    keeps the row, and a server that was restarted or replaced tells nothing else of itself. `gap`
    is what the last one takes for a long time, `gaps` counts the ticks in a row that came so late.
    `served_at` is when a server was last here, without which workers that come over HTTP cannot
    renew; `served_since` is since when there was always one.
    """

    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: int = c.key_small()
    ticked_at: datetime | None = c.moment(null=True)
    gap: timedelta | None = c.span(null=True)
    holds_until: datetime | None = c.moment(null=True)
    gaps: int = c.small(default="0")
    served_at: datetime | None = c.moment(null=True)
    served_since: datetime | None = c.moment(null=True)


class SetAside(SQLModel, table=True):
    """A row that no tick could move, as it was in `place`; an operator looks, and deletes it."""

    __tablename__ = "set_aside"

    id: int = c.identity()
    at: datetime = c.moment()
    place: str = c.string()
    job_id: int = c.big()
    error: str = c.string()
    content: dict[str, Any] = c.document()


class Thinned(SQLModel, table=True):
    """Until when one row of each `width_s` seconds stays of a table; made by the migration."""

    subject: str = c.key_string()
    width_s: int = c.key_integer()
    until: datetime = c.moment(default="'-infinity'")
