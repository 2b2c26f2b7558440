"""What jobs found out: results, tests, metrics, and the points of sweeps."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from forge_schema.model.fields import Open, Record
from forge_schema.model.states import Reason, State, Verdict


class Result(Record):
    """The JSON object in which a job said what it found; None where it has said nothing."""

    attempt: int | None = None
    values: dict[str, Any] | None = None
    created_at: datetime | None = None


class MetricLine(Record):
    """One line that a job wrote to its metrics file; its place is `token` and `number`."""

    token: int = Field(repr=False)
    attempt: int
    rank: int
    number: int
    at: datetime
    step: float | None = None
    values: dict[str, Any]


class LastMetric(Record):
    """What a job wrote last under a key."""

    key: str
    value: Any
    step: float | None = None
    attempt: int
    at: datetime


class JobTest(Record):
    """How one test ended, numbered from 0 in the order of the report."""

    number: int
    attempt: int
    suite: str
    name: str
    verdict: Open[Verdict]
    seconds: float | None = None
    message: str | None = None


class Curve(Record):
    """One curve of a chart; `gpu` is a UUID where it is of a GPU.

    Each point is a run of values: `t` (Unix seconds) and `step` are those of its last one. `count`
    is how many values were read in all. `step` is empty for samples.
    """

    source: Literal["metric", "sample"]
    key: str
    gpu: str | None = None
    count: int
    t: list[float]
    step: list[float | None]
    min: list[float]
    avg: list[float]
    max: list[float]
    last: list[float]


class Series(Record):
    """What an attempt wrote as metrics and was seen to use; `left_off` curves were too many.

    `until` is its end, or now while it is `running`. There is none where `attempt` is None.
    """

    attempt: int | None = None
    rank: int = 0
    since: datetime | None = None
    until: datetime | None = None
    running: bool = False
    left_off: int = 0
    items: list[Curve] = Field(default_factory=list)


class SweepPoint(Record):
    """One job of a sweep; `seconds` is how long the attempt that counts ran."""

    job_id: int
    name: str
    state: Open[State]
    reason: Open[Reason] | None = None
    parameters: dict[str, Any]
    result: dict[str, Any] | None = None
    seconds: float | None = None
    gpu_seconds: float | None = None
    energy_j: float | None = None


class SweepCancelled(Record):
    """How many jobs were cancelled at once, and how many their workers are asked to end."""

    cancelled: int
    running: int
