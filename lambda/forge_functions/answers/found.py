"""What answers hold of what jobs found out."""

from datetime import datetime
from typing import Any, Literal

from forge_schema.model.states import Reason, State, Verdict
from pydantic import BaseModel


class Result(BaseModel):
    """The JSON object in which a job said what it found, and the attempt that did."""

    attempt: int | None
    values: dict[str, Any] | None
    created_at: datetime | None


class MetricLine(BaseModel):
    """One line that a job wrote to its metrics file; its place is `token` and `number`."""

    token: int
    rank: int
    number: int
    attempt: int
    at: datetime
    step: float | None
    values: dict[str, Any]


class LastMetric(BaseModel):
    """What a job wrote last under a key."""

    key: str
    value: Any
    step: float | None
    attempt: int
    at: datetime


class JobTest(BaseModel):
    """How one test ended, numbered from 0 in the order of the report."""

    number: int
    attempt: int
    suite: str
    name: str
    verdict: Verdict
    seconds: float | None
    message: str | None


class Curve(BaseModel):
    """One curve: `t` (Unix seconds) and `step` are those of the last value in each point's run.

    `count` is how many values were read. `step` is empty for samples.
    """

    source: Literal["metric", "sample"]
    key: str
    gpu: str | None
    count: int
    t: list[float]
    step: list[float | None]
    min: list[float]
    avg: list[float]
    max: list[float]
    last: list[float]


class Series(BaseModel):
    """The curves of an attempt; `left_off` were too many. While it is `running`, it ends now."""

    attempt: int | None
    rank: int
    since: datetime | None
    until: datetime | None
    running: bool
    left_off: int
    items: list[Curve]


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
