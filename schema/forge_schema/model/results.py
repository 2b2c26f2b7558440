"""Results of jobs: result, tests, metrics, and the points of sweeps."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from forge_schema.model.fields import Open, Record
from forge_schema.model.states import Reason, State, Verdict


class Result(Record):
    """The JSON object that a job reported as its result; None if it reported none."""

    attempt: int | None = None
    values: dict[str, Any] | None = None
    created_at: datetime | None = None


class MetricLine(Record):
    """One line of a job's metrics file, ordered by `token` and `number`."""

    token: int = Field(repr=False)
    attempt: int
    rank: int
    number: int
    at: datetime
    step: float | None = None
    values: dict[str, Any]


class LastMetric(Record):
    """The last value of a metric."""

    key: str
    value: Any
    step: float | None = None
    attempt: int
    at: datetime


class JobTest(Record):
    """The result of one test, numbered from 0 in the order of the report."""

    number: int
    attempt: int
    suite: str
    name: str
    verdict: Open[Verdict]
    seconds: float | None = None
    message: str | None = None


class Curve(Record):
    """One curve of a chart; `gpu` is the UUID if it belongs to a GPU.

    Each point summarises a run of values; `t` (Unix seconds) and `step` are those of the last.
    `count` is the number of values read. `step` is empty for samples.
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


class Join(Record):
    """Where a later attempt begins: its first step, and the time `t` (Unix seconds)."""

    attempt: int
    step: float | None = None
    t: float


class Series(Record):
    """The metrics of a job and the resource samples of an attempt.

    `attempt` is the newest that has any, or None; `until` is its end, or now while it is `running`.
    Without a wanted attempt, the metrics go over all attempts: `joins` says where later ones begin.
    Values that a resumed attempt reported again are in `superseded`, as the earlier ones reported
    them. `left_off` counts curves not returned.
    """

    attempt: int | None = None
    rank: int = 0
    since: datetime | None = None
    until: datetime | None = None
    running: bool = False
    left_off: int = 0
    items: list[Curve] = Field(default_factory=list)
    superseded: list[Curve] = Field(default_factory=list)
    joins: list[Join] = Field(default_factory=list)


class SweepPoint(Record):
    """One job of a sweep; `seconds` is the run time of the attempt that counts."""

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
    """The number of jobs cancelled at once, and of those that their workers were asked to end."""

    cancelled: int
    running: int
