"""How much GPU time each owner has had, for fair shares."""

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


def _number(name: str) -> "sa.Column[float]":
    return sa.Column(name, sa.Double(), server_default=sa.text("0"), nullable=False)
