"""Gangs: jobs that run on several workers at once."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.add_column("worker", sa.Column("address", sa.Text(), nullable=True))
    op.add_column("idle", sa.Column("nonce", postgresql.UUID(), nullable=True))
    op.add_column(
        "lease", sa.Column("nodes", sa.SmallInteger(), server_default=sa.text("1"), nullable=False)
    )
    op.create_index("lease_gang", "lease", ["worker_id"], postgresql_where=sa.text("nodes > 1"))
    op.create_index("shape_gang", "shape", ["id"], postgresql_where=sa.text("nodes > 1"))
    op.create_table(
        "forming",
        _key("job_id"),
        sa.Column("pool", sa.Text(), nullable=False),
        *_place(),
        _moment("since"),
        _moment("deadline"),
        sa.Column("turns", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
        _moment("rests_until", null=True),
        sa.CheckConstraint("deadline > since", name="deadline_after_since"),
        sa.CheckConstraint("turns >= 1", name="turns_positive"),
    )
    op.create_index(
        "forming_pool",
        "forming",
        ["pool"],
        unique=True,
        postgresql_where=sa.text("rests_until IS NULL"),
    )
    op.create_table(
        "draft",
        _key("worker_id"),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        *_place(),
        _moment("until"),
    )


def _key(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger(), primary_key=True, autoincrement=False)


def _place() -> "tuple[sa.Column[int], sa.Column[int]]":
    return (
        sa.Column("lane_id", sa.Integer(), nullable=False),
        sa.Column("nice", sa.SmallInteger(), nullable=False),
    )


def _moment(name: str, *, null: bool = False) -> "sa.Column[object]":
    return sa.Column(name, postgresql.TIMESTAMP(timezone=True), nullable=null)
