"""What answers hold of what jobs found out."""

from datetime import datetime
from typing import Any

from forge_schema.states import Reason, State, Verdict
from pydantic import BaseModel


class Result(BaseModel):
    """The JSON object in which a job said what it found, and the attempt that did."""

    attempt: int | None
    values: dict[str, Any] | None
    created_at: datetime | None


class JobTest(BaseModel):
    """How one test ended, numbered from 0 in the order of the report."""

    number: int
    attempt: int
    suite: str
    name: str
    verdict: Verdict
    seconds: float | None
    message: str | None


class SweepPoint(BaseModel):
    """One job of a sweep; `seconds` is how long the attempt that counts ran."""

    job_id: int
    name: str
    state: State
    reason: Reason | None
    parameters: dict[str, Any]
    result: dict[str, Any] | None
    seconds: float | None
    gpu_seconds: float | None
    energy_j: float | None
