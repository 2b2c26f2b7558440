"""The results of attempts, their tests, and their resource samples."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c
from forge_schema.model.states import Verdict


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
