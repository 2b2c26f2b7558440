"""Attempts, and the results, test results and samples of each."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Sequence, text
from sqlmodel import Field, SQLModel

from forge_schema.database.tables import columns as c
from forge_schema.model.states import Reason, Verdict

EVENT_ID = Sequence("event_id", metadata=SQLModel.metadata, data_type=BigInteger)


class AttemptRow(SQLModel, table=True):
    """The attempts that are no success of a single machine; those are rows of `outcome`.

    The view `attempt` has both: who ran it, when, why it ended and what it cost. It is the audit
    trail of every dispatch and end. Append-only (a trigger refuses other changes), partitioned by
    month.
    """

    __tablename__ = "attempt_row"
    __table_args__ = (
        CheckConstraint("finished_at >= claimed_at", name="finished_after_claimed"),
        CheckConstraint("attempt >= 1", name="counted"),
        # Rows are inserted in this order, which a BRIN index needs.
        Index("attempt_times", "finished_at", "claimed_at", postgresql_using="brin"),
        # Reports are bounded by days.
        Index("attempt_days", c.day("finished_at"), c.day("claimed_at"), postgresql_using="brin"),
        # For a worker's newest attempts.
        Index("attempt_worker", "worker_id", "finished_at"),
        Index(
            "attempt_interrupted",
            "finished_at",
            postgresql_where=text(
                "reason IN ('preempted', 'drained', 'worker_lost', 'gpu_fault', 'storage_failed',"
                " 'start_failed')"
            ),
        ),
        {"postgresql_partition_by": "RANGE (finished_at)"},
    )

    job_id: int = c.key_big()
    attempt: int = c.key_small()
    rank: int = c.key_small()
    finished_at: datetime = c.key_moment()
    token: int = c.big()
    nonce: UUID = c.uuid()
    worker_id: int = c.big()
    lane_id: int = c.integer()
    ready_at: datetime = c.moment()
    claimed_at: datetime = c.moment()
    started_at: datetime | None = c.moment(null=True)
    reason: Reason = c.word(Reason)
    exit_code: int | None = c.integer(null=True)
    detail: str | None = c.string(null=True)
    devices: list[str] = c.strings(default="'{}'")
    gpu_seconds: float = c.number(default="0")
    energy_j: float | None = c.number(null=True)
    cost: float | None = c.number(null=True)
    cpu_seconds: float | None = c.number(null=True)
    peak_memory_mb: int | None = c.integer(null=True)
    peak_vram_mb: int | None = c.integer(null=True)
    checkpoint_at: datetime | None = c.moment(null=True)


class Result(SQLModel, table=True):
    """The JSON object that an attempt reported as its result."""

    __table_args__ = (CheckConstraint("jsonb_typeof(values) = 'object'", name="values_object"),)

    job_id: int = c.key_big()
    token: int = c.key_big()
    attempt: int = c.small()
    values: dict[str, Any] = c.document()
    created_at: datetime = c.moment()


class TestResult(SQLModel, table=True):
    """The result of one test, numbered from 0 in the order of the attempt's JUnit report."""

    __tablename__ = "test_result"
    __table_args__ = (
        CheckConstraint("number >= 0", name="number_not_negative"),
        CheckConstraint("seconds >= 0", name="seconds_not_negative"),
        Index("test_result_at", "created_at", postgresql_using="brin"),
    )

    job_id: int = c.key_big()
    token: int = c.key_big()
    number: int = c.key_integer()
    attempt: int = c.small()
    suite: str = c.string()
    name: str = c.string()
    verdict: Verdict = c.word(Verdict)
    seconds: float | None = c.number(null=True)
    message: str | None = c.string(null=True)
    created_at: datetime = c.moment()


class Sample(SQLModel, table=True):
    """One measurement of an attempt's resources, numbered from 0; partitioned by month."""

    __table_args__ = (
        Index("sample_at", "at"),
        {"postgresql_partition_by": "RANGE (at)"},
    )

    job_id: int = c.key_big()
    token: int = c.key_big()
    rank: int = c.key_small()
    number: int = c.key_integer()
    at: datetime = c.key_moment()
    attempt: int = c.small()
    values: dict[str, Any] = c.document()


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
