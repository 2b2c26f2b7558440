"""Gangs, jobs on several machines, for which machines are kept free."""

from datetime import datetime

from sqlalchemy import CheckConstraint, Index, text
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c


class Forming(SQLModel, table=True):
    """The one gang of each pool that machines are drafted for, and those that had their turn.

    A pool is the kind of accelerator that the gang wants. A gang that did not form by the
    `deadline` rests for as long as machines were kept for it; its next turn is twice as long.
    Jobs that end by `expected_at` may run on these machines. One whose run was asked to end so that
    it `grows` goes on with so many machines.
    """

    __table_args__ = (
        CheckConstraint("deadline > since", name="deadline_after_since"),
        CheckConstraint("turns >= 1", name="turns_positive"),
        CheckConstraint("grows > 2", name="grows_beyond_least"),
        CheckConstraint("expected_at < deadline", name="expected_before_deadline"),
        Index("forming_pool", "pool", unique=True, postgresql_where=text("rests_until IS NULL")),
    )

    job_id: int = c.key_big()
    pool: str = c.string()
    lane_id: int = c.integer()
    nice: int = c.small()
    since: datetime = c.moment()
    deadline: datetime = c.moment()
    turns: int = c.small(default="1")
    rests_until: datetime | None = c.moment(null=True)
    grows: int | None = c.small(null=True)
    expected_at: datetime | None = c.moment(null=True)


class Draft(SQLModel, table=True):
    """A worker that keeps room for a gang, until then at most; it takes only jobs beside it."""

    worker_id: int = c.key_big()
    job_id: int = c.big()
    lane_id: int = c.integer()
    nice: int = c.small()
    until: datetime = c.moment()
