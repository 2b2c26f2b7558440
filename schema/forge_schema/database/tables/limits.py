"""Settings of queues and owners: pause, limits, weight."""

from sqlalchemy import CheckConstraint
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c


class Queue(SQLModel, table=True):
    """A queue. A limit of NULL means no limit."""

    __table_args__ = (
        CheckConstraint("max_jobs >= 0 AND max_gpus >= 0", name="limits_not_negative"),
    )

    name: str = c.key_string()
    paused: bool = c.flag()
    max_jobs: int | None = c.integer(null=True)
    max_gpus: int | None = c.integer(null=True)


class OwnerQuota(SQLModel, table=True):
    """An owner's limits (NULL means none) and weight. Twice the weight is twice the share."""

    __tablename__ = "owner_quota"
    __table_args__ = (
        CheckConstraint("max_jobs >= 0 AND max_gpus >= 0", name="limits_not_negative"),
        CheckConstraint("weight > 0", name="weight_positive"),
    )

    owner: str = c.key_string()
    paused: bool = c.flag()
    max_jobs: int | None = c.integer(null=True)
    max_gpus: int | None = c.integer(null=True)
    weight: float = c.number(default="1")
