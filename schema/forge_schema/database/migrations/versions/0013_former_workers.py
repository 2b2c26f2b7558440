"""Names of removed workers."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "former_worker",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("former_worker_name", "former_worker", ["name", "id"])
    # The audit trail names those removed so far.
    op.execute(
        "INSERT INTO former_worker (id, name)"
        " SELECT worker_id, detail ->> 'name' FROM event"
        " WHERE worker_id IS NOT NULL AND action IN ('reaped', 'worker_deleted')"
        " AND detail ->> 'name' IS NOT NULL"
        " ON CONFLICT DO NOTHING"
    )
