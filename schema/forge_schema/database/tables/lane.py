"""A lane: shape, queue and owner, the unit of matching, pause, limits and fair share."""

from sqlalchemy import ForeignKeyConstraint, UniqueConstraint
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c


class Lane(SQLModel, table=True):
    """Tens to hundreds of rows: whoever claims looks at the head of each lane it serves.

    `paused` repeats the queue's or the owner's, and `limited` says whether one of them has a limit,
    so that a claim need look at the lane alone.
    """

    __table_args__ = (
        ForeignKeyConstraint(["shape_id"], ["shape.id"], name="lane_shape"),
        ForeignKeyConstraint(["queue"], ["queue.name"], name="lane_queue"),
        ForeignKeyConstraint(["owner"], ["owner_quota.owner"], name="lane_owner"),
        UniqueConstraint("shape_id", "queue", "owner", name="lane_distinct"),
    )

    id: int = c.identity(big=False)
    shape_id: int = c.integer()
    queue: str = c.string()
    owner: str = c.string()
    paused: bool = c.flag()
    limited: bool = c.flag()
