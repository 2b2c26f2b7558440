"""The id of the queue in this database."""

from uuid import UUID

from sqlalchemy import CheckConstraint
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c


class Identity(SQLModel, table=True):
    """One row, made by the migration. Tells queues apart whose workers share a machine."""

    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: int = c.key_small()
    queue_id: UUID = c.uuid(default="gen_random_uuid()")
