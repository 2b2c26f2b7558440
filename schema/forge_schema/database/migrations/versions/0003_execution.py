"""Execution: kinds of job, their results, resource samples, conditions of machines."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

MOMENT = postgresql.TIMESTAMP(timezone=True)
TYPES = {
    "job_kind": ("command", "test", "benchmark", "custom"),
    "verdict": ("passed", "failed", "error", "skipped"),
}

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    for name, words in TYPES.items():
        listed = ", ".join(f"'{w}'" for w in words)
        op.execute(f"CREATE TYPE {name} AS ENUM ({listed})")
    op.execute("ALTER TYPE worker_status ADD VALUE 'constrained' AFTER 'busy'")
    _jobs()
    _workers()
    _used()
    _results()


def _jobs() -> None:
    kind = postgresql.ENUM(*TYPES["job_kind"], name="job_kind", create_type=False)
    op.add_column("job", sa.Column("kind", kind, server_default="command", nullable=False))
    op.add_column("job", sa.Column("sweep", sa.Text(), nullable=True))
    op.create_index(
        "job_sweep", "job", ["owner", "sweep", "id"], postgresql_where=sa.text("sweep IS NOT NULL")
    )


def _workers() -> None:
    op.add_column(
        "worker",
        sa.Column("condition", _document(), server_default=sa.text("'{}'"), nullable=False),
    )
    op.create_check_constraint("condition_object", "worker", "jsonb_typeof(condition) = 'object'")


def _used() -> None:
    op.add_column("attempt", sa.Column("cpu_seconds", sa.Double(), nullable=True))
    op.add_column("attempt", sa.Column("peak_memory_mb", sa.Integer(), nullable=True))
    op.add_column("attempt", sa.Column("peak_vram_mb", sa.Integer(), nullable=True))
    op.add_column(
        "lease", sa.Column("samples", sa.Integer(), server_default=sa.text("0"), nullable=False)
    )
    op.create_table(
        "sample",
        _key("job_id", sa.BigInteger()),
        _key("token", sa.BigInteger()),
        _key("rank", sa.SmallInteger()),
        _key("number", sa.Integer()),
        _key("at", MOMENT),
        sa.Column("attempt", sa.SmallInteger(), nullable=False),
        sa.Column("values", _document(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "token", "rank", "number", "at"),
        postgresql_partition_by="RANGE (at)",
    )
    op.execute("CREATE TABLE sample_default PARTITION OF sample DEFAULT")


def _results() -> None:
    op.create_table(
        "result",
        _key("job_id", sa.BigInteger()),
        _key("token", sa.BigInteger()),
        sa.Column("attempt", sa.SmallInteger(), nullable=False),
        sa.Column("values", _document(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.CheckConstraint("jsonb_typeof(values) = 'object'", name="values_object"),
        sa.PrimaryKeyConstraint("job_id", "token"),
    )
    verdict = postgresql.ENUM(*TYPES["verdict"], name="verdict", create_type=False)
    op.create_table(
        "test_result",
        _key("job_id", sa.BigInteger()),
        _key("token", sa.BigInteger()),
        _key("number", sa.Integer()),
        sa.Column("attempt", sa.SmallInteger(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("verdict", verdict, nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.CheckConstraint("number >= 0", name="number_not_negative"),
        sa.CheckConstraint("seconds >= 0", name="seconds_not_negative"),
        sa.PrimaryKeyConstraint("job_id", "token", "number"),
    )


def _key(name: str, kind: sa.types.TypeEngine[Any]) -> sa.Column[Any]:
    return sa.Column(name, kind, autoincrement=False, nullable=False)


def _document() -> postgresql.JSONB:
    return postgresql.JSONB(astext_type=sa.Text())
