"""A lane: shape, queue and owner, the unit of matching, pause, limits and fair share."""

from sqlalchemy import ForeignKeyConstraint, UniqueConstraint
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c


class Lane(SQLModel, table=True):
    """Tens to hundreds of rows: a claim looks at the head of each lane that the worker serves.

    `paused` is true if the queue or the owner is paused, and `limited` if either has a limit, so
    that a claim reads only the lane.
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
