"""The audit trail: one row for every transition and every action."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Column, Index, Sequence, text
from sqlmodel import Field, SQLModel

from forge_schema.database.tables import columns as c

EVENT_ID = Sequence("event_id", metadata=SQLModel.metadata, data_type=BigInteger)


class Event(SQLModel, table=True):
    """Insert-only (a trigger refuses other changes), partitioned by month."""

    __table_args__ = (
        Index("event_at", "at", postgresql_using="brin"),
        Index("event_job", "job_id", postgresql_where=text("job_id IS NOT NULL")),
        Index("event_worker", "worker_id", "at", postgresql_where=text("worker_id IS NOT NULL")),
        {"postgresql_partition_by": "RANGE (at)"},
    )

    id: int = Field(
        default=None,
        sa_column=Column(
            BigInteger, primary_key=True, autoincrement=False, server_default=EVENT_ID.next_value()
        ),
    )
    at: datetime = c.key_moment()
    actor: str = c.string()
    action: str = c.string()
    job_id: int | None = c.big(null=True)
    worker_id: int | None = c.big(null=True)
    token: int | None = c.big(null=True)
    detail: dict[str, Any] | None = c.document(null=True)
