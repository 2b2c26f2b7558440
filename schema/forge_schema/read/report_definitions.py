"""The reports: how each reporting view can be bounded, grouped and summed.

`forge report` reads this, so it imports little.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

TEAM, DAY, MONTH = "team", "day", "month"


class ReportGroup(StrEnum):
    """What people look for in reports, in the order of the page that lists them."""

    USE = "Cost and use"
    WAITING = "Waiting"
    FAILURES = "Failures"
    JOBS = "Jobs"
    AUDIT = "Who did what"


class Report(NamedTuple):
    """A reporting view.

    Attributes:
        about: a one-line description.
        group: the heading below which people find it.
        time: the column that `since` and `until` bound: a time, or `day`, which counts whole days.
        keys: the columns that rows may be grouped by.
        measures: the columns of a group, each an aggregate of the source's columns.
        source: the relation to group, if the view's rows cannot be summed.
        day: the day of a row of the source, if `day` is one of the keys.
        owned: whether each row belongs to one owner, who may then read it.
        now: whether it shows the current state, whenever that began.
        order: the column to sort by without a bound, if an index makes it faster than the time.
    """

    about: str
    group: ReportGroup
    keys: tuple[str, ...]
    measures: Mapping[str, str]
    time: str | None = None
    source: str | None = None
    day: str = "day"
    owned: bool = True
    now: bool = False
    order: str | None = None

    @property
    def summed(self) -> bool:
        """Whether its rows are sums of days, of which nobody wants all of the past at once."""
        return self.time == DAY

    def added_up(self, name: str, columns: Sequence[str]) -> list[str]:
        """Return which columns may be added up, the one with the report's name first.

        A share and a number of different jobs may not.
        """
        found = [c for c in columns if _SUM.match(self.measures.get(c, ""))]
        return sorted(found, key=lambda column: column != name)

    @property
    def groups(self) -> tuple[str, ...]:
        """What rows may be grouped by: the keys, a day's month, and the team of an owner now."""
        months = [MONTH] if DAY in self.keys else []
        return (*self.keys, *months, *([TEAM] if "owner" in self.keys else []))

    @property
    def computed(self) -> Mapping[str, str]:
        """The columns of groups that the source lacks."""
        month = f"to_char({self.day}, 'YYYY-MM')"
        return {DAY: self.day, MONTH: month, TEAM: "forge_team(owner)"}


def over_time(rows: Sequence[Mapping[str, Any]], column: str) -> dict[date, float]:
    """Return the sums of a column by the days or months of rows, oldest first, 0 where none is.

    They are empty if the rows have no days, or are all of one.
    """
    units = [unit for unit in (DAY, MONTH) if rows and unit in rows[0]]
    if not units:
        return {}
    unit = units[0]
    sums: defaultdict[date, float] = defaultdict(float)
    for row in rows:
        at = row[unit] if unit == DAY else date.fromisoformat(f"{row[unit]}-01")
        sums[at] += float(row[column] or 0)
    if len(sums) < 2:  # noqa: PLR2004 - a day alone is no curve
        return {}
    at, last = min(sums), max(sums)
    days = [at]
    while at < last:
        at = at + timedelta(days=1) if unit == DAY else (at + timedelta(days=32)).replace(day=1)
        days.append(at)
    return {day: sums[day] for day in days}


def day_of(column: str) -> str:
    return f"({column} AT TIME ZONE 'UTC')::date"


def totals(*columns: str) -> dict[str, str]:
    """Sum integers into an integer."""
    return {column: f"sum({column})::bigint" for column in columns}


def sums(*columns: str) -> dict[str, str]:
    return {column: f"sum({column})" for column in columns}


_SUM = re.compile(r"(sum\(\w+\)(::bigint)?|count\(\*\))$")
ROWS = "count(*)"
JOBS = {"jobs": "count(DISTINCT job_id)"}
ATTEMPTS = "count(DISTINCT (job_id, attempt))"
FIRST_RANKS = "count(*) FILTER (WHERE rank = 0)"
WAIT = {
    "claims": ROWS,
    "mean_s": "avg(waited_s)",
    "median_s": "percentile_cont(0.5) WITHIN GROUP (ORDER BY waited_s)",
    "p95_s": "percentile_cont(0.95) WITHIN GROUP (ORDER BY waited_s)",
    "max_s": "max(waited_s)",
}
PLACE = ("queue", "owner", "shape_id", "day")
SPENT = ("gpu_seconds", "cpu_seconds", "energy_j", "cost")

REPORTS: dict[str, Report] = {
    "attempt_history": Report(
        "every finished attempt",
        ReportGroup.FAILURES,
        ("owner", "queue", "name", "worker", "reason", "day"),
        {"attempts": FIRST_RANKS, **JOBS, **sums("held_s", *SPENT)}
        | {peak: f"max({peak})" for peak in ("peak_memory_mb", "peak_vram_mb")},
        time="finished_at",
        day=day_of("finished_at"),
    ),
    "audit": Report(
        "who did what and when",
        ReportGroup.AUDIT,
        ("actor", "action", "worker_id", "day"),
        {"events": ROWS},
        time="at",
        day=day_of("at"),
        owned=False,
    ),
    "benchmark_results": Report(
        "every ended job of a sweep",
        ReportGroup.JOBS,
        ("sweep", "owner", "name", "state", "reason", "worker", "day"),
        {"jobs": ROWS, **sums("seconds", "last_seconds", "gpu_seconds", "energy_j", "cost")},
        time="submitted_at",
        day=day_of("submitted_at"),
    ),
    "claims": Report(
        "every claim, and the wait before it", ReportGroup.WAITING, PLACE, WAIT, time="claimed_at"
    ),
    "cost": Report(
        "the cost of jobs, useful and wasted",
        ReportGroup.USE,
        ("owner", "queue", "job_id", "name", "day"),
        {
            **JOBS,
            **totals("attempts", "unpriced"),
            **sums("cost", "useful_cost", "wasted_cost"),
            "goodput": "sum(useful_cost) / nullif(sum(cost), 0)",
        },
        time="day",
    ),
    "energy": Report(
        "the energy that GPUs used",
        ReportGroup.USE,
        ("owner", "queue", "day"),
        {
            **totals("attempts", "unmeasured"),
            **sums("energy_kwh", "useful_kwh", "measured_gpu_hours"),
            "watts_per_gpu": "1000 * sum(energy_kwh) / nullif(sum(measured_gpu_hours), 0)",
        },
        time="day",
    ),
    "failed_attempts": Report(
        "every failed attempt, once per GPU",
        ReportGroup.FAILURES,
        ("reason", "owner", "queue", "name", "worker_id", "worker", "gpu", "exit_code", "day"),
        {"failures": ATTEMPTS, **JOBS, "last_at": "max(finished_at)"},
        time="finished_at",
    ),
    "failures": Report(
        "how many attempts failed, and where",
        ReportGroup.FAILURES,
        ("reason", "worker_id", "worker", "gpu", "day"),
        {"failures": ATTEMPTS, **JOBS, "last_at": "max(finished_at)"},
        time="day",
        source="failed_attempts",
        owned=False,
    ),
    "gpu_hours": Report(
        "GPU-hours, useful and wasted, and CPU-hours",
        ReportGroup.USE,
        ("owner", "queue", "day"),
        {
            **totals("attempts"),
            **sums("gpu_hours", "useful_gpu_hours", "wasted_gpu_hours"),
            "goodput": "sum(useful_gpu_hours) / nullif(sum(gpu_hours), 0)",
            **sums("cpu_hours"),
        },
        time="day",
    ),
    "jobs": Report(
        "every job with its state",
        ReportGroup.JOBS,
        ("owner", "queue", "state", "reason", "name", "worker", "day"),
        {"jobs": ROWS},
        time="submitted_at",
        day=day_of("submitted_at"),
        order="job_id",
    ),
    "lost_time": Report(
        "the time that each interrupted attempt cost",
        ReportGroup.USE,
        ("owner", "queue", "name", "worker_id", "worker", "reason", "day", "displaced_by"),
        {
            "attempts": FIRST_RANKS,
            **sums("again_s", "waited_s", "restored_s", "lost_s", "again_gpu_s"),
        },
        time="finished_at",
    ),
    "preemptions": Report(
        "the jobs that workers gave back, and their cost",
        ReportGroup.USE,
        ("worker_id", "worker", "day"),
        {
            "preemptions": ATTEMPTS,
            "saved": f"{ATTEMPTS} FILTER (WHERE checkpoint_at IS NOT NULL)",
            "resumed": f"{ATTEMPTS} FILTER (WHERE next_attempt IS NOT NULL)",
            **sums("again_s", "waited_s", "restored_s", "lost_s"),
        },
        time="day",
        source="(SELECT * FROM lost_time WHERE reason IN ('preempted', 'drained')) AS given_back",
        owned=False,
    ),
    "queue_demand": Report(
        "the current demand by requirements",
        ReportGroup.WAITING,
        ("shape_id", "accelerator", "gpus", "gpu_model", "vram_mb", "target", "nodes"),
        totals("waiting", "running", "demand", "max_demand"),
        owned=False,
    ),
    "queue_wait": Report(
        "how long jobs waited to be claimed",
        ReportGroup.WAITING,
        PLACE,
        WAIT,
        time="day",
        source="claims",
    ),
    "runs": Report(
        "every job with what it was given, measured and found",
        ReportGroup.JOBS,
        ("experiment", "sweep", "owner", "name", "state", "reason", "revision", "day"),
        {"jobs": ROWS, **sums("seconds", "gpu_seconds", "cost")},
        time="submitted_at",
        day=day_of("submitted_at"),
    ),
    "sla": Report(
        "how soon jobs started, and how many succeeded",
        ReportGroup.WAITING,
        ("queue", "owner", "day"),
        {
            **totals("jobs", "waiting", "started_1m", "started_5m", "started_60m"),
            **{
                f"share_{limit}": f"sum(started_{limit})::float8 / sum(jobs)::float8"
                for limit in ("1m", "5m", "60m")
            },
            **totals("ended", "succeeded"),
            "share_succeeded": "sum(succeeded)::float8 / nullif(sum(ended), 0)::float8",
        },
        time="day",
    ),
    "stuck": Report(
        "jobs that make no progress, and why",
        ReportGroup.WAITING,
        ("kind", "owner", "queue", "shape_id", "worker_id", "worker"),
        {**JOBS, "since": "min(since)", "seconds": "max(seconds)"},
        time="since",
        now=True,
    ),
    "test_results": Report(
        "every test of every attempt",
        ReportGroup.JOBS,
        ("job", "owner", "suite", "name", "verdict", "day"),
        {"tests": ROWS, **JOBS, **sums("seconds")},
        time="created_at",
        day=day_of("created_at"),
    ),
    "worker_utilisation": Report(
        "the use of each worker by day",
        ReportGroup.USE,
        ("worker_id", "worker", "day"),
        {
            **totals("attempts"),
            **sums("leased_s", "running_s", "useful_s"),
            "useful_share": "sum(useful_s) / nullif(sum(leased_s) - sum(running_s), 0)",
            **sums("there_s", "gpu_s", "gpu_there_s"),
            "gpu_share": "sum(gpu_s) / nullif(sum(gpu_there_s), 0)",
        },
        time="day",
        owned=False,
    ),
}
