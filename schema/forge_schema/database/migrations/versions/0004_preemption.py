"""Preemption and outages: stalled jobs, jobs that start from a checkpoint, the sweepers' memory."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

MOMENT = postgresql.TIMESTAMP(timezone=True)

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("ALTER TYPE reason ADD VALUE 'stalled' AFTER 'timeout'")
    op.add_column("attempt", sa.Column("checkpoint_at", MOMENT, nullable=True))
    _sources()
    _sweeper()


def _sources() -> None:
    op.add_column("job", sa.Column("source_job_id", sa.BigInteger(), nullable=True))
    op.add_column("job", sa.Column("source_token", sa.BigInteger(), nullable=True))
    op.add_column("job", sa.Column("source_number", sa.Integer(), nullable=True))
    op.create_check_constraint(
        "source_whole",
        "job",
        "num_nulls(source_job_id, source_token, source_number) IN (0, 3)",
        postgresql_not_valid=True,
    )
    op.create_index(
        "job_source",
        "job",
        ["source_job_id"],
        postgresql_where=sa.text("source_job_id IS NOT NULL"),
    )


def _sweeper() -> None:
    op.create_table(
        "sweeper",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("ticked_at", MOMENT, nullable=True),
        sa.Column("gap", sa.Interval(), nullable=True),
        sa.Column("holds_until", MOMENT, nullable=True),
        sa.Column("gaps", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("id = 1", name="one_row"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.execute("INSERT INTO sweeper (id) VALUES (1)")
