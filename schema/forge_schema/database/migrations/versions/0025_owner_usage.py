"""How much GPU time each owner has had; workers that are to drain or stop."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.create_table(
        "owner_usage",
        sa.Column("owner", sa.Text(), primary_key=True, autoincrement=False),
        sa.Column("level", sa.Double(), nullable=False),
        sa.Column("at", postgresql.TIMESTAMP(timezone=True), nullable=False),
        prefixes=["UNLOGGED"],
        postgresql_with={"fillfactor": 50},
    )
    op.add_column(
        "sweeper", sa.Column("counted_at", postgresql.TIMESTAMP(timezone=True), nullable=True)
    )
    op.add_column("sweeper", _number("level"))
    op.add_column("sweeper", _number("pace"))
    op.create_index(
        "worker_asked", "worker", ["id"], postgresql_where=sa.text("command IS NOT NULL")
    )


def _number(name: str) -> "sa.Column[float]":
    return sa.Column(name, sa.Double(), server_default=sa.text("0"), nullable=False)
