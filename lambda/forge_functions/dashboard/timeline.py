"""A job's attempts as bars on one time scale: waiting, preparing, running, lost."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from forge_schema.database.pool import Row
from forge_schema.model.job import JobStatus
from forge_schema.model.states import Budget, Reason

# The width of the drawing, and the minimum width of a bar.
WIDTH = 1000.0
LEAST = 3.0
KINDS = ("waiting", "preparing", "running", "lost")
# Reasons that are not the job's fault: the work after the last checkpoint is lost.
INTERRUPTED = {r.value for r in Reason if r.budget in {Budget.LOSSES, Budget.PREEMPTIONS}} | {
    Reason.GPU_FAULT.value,
    Reason.DRAINED.value,
}


@dataclass(frozen=True)
class Bar:
    """A span of time, placed in the drawing."""

    kind: str
    x: float
    width: float
    seconds: float


@dataclass(frozen=True)
class TimelineRow:
    """The bars of one attempt and rank; `run` is None if it has not started.

    It waited for `waited_s` seconds, including the pause after the attempt before.
    """

    bars: list[Bar]
    run: Row | None
    waited_s: float


def timeline(job: JobStatus, runs: Sequence[Row], now: datetime) -> list[TimelineRow]:
    """Return the wait of a job that will run, and a line for each attempt and rank, newest first.

    Args:
        job: its status.
        runs: its attempts from `JobStory.runs`.
        now: the end of bars that have not ended.
    """
    begin = min([run["ready_at"] for run in runs], default=job.submitted_at)
    waits = not job.state.terminal and job.state != "running"
    until = now if waits or job.state == "running" else _last(job, runs)
    scale = WIDTH / max((until - begin).total_seconds(), 1.0)
    # The ranks of an attempt stay in order.
    newest = sorted(runs, key=lambda run: -run["attempt"])
    ends = {run["attempt"]: run["finished_at"] for run in runs}
    lines = [_line(run, ends.get(run["attempt"] - 1), begin, until, scale) for run in newest]
    if waits or not runs:
        since = max([run["finished_at"] for run in runs if run["finished_at"]], default=begin)
        bars = _placed([("waiting", since, until)], begin, scale)
        lines.insert(0, TimelineRow(bars, None, (until - since).total_seconds()))
    return lines


def _line(
    run: Row, before: datetime | None, begin: datetime, until: datetime, scale: float
) -> TimelineRow:
    end = run["finished_at"] or until
    # A retry becomes ready only after its pause.
    since = min(before or run["ready_at"], run["ready_at"])
    started = run["started_at"] or end
    lost = (run["checkpoint_at"] or started) if run["reason"] in INTERRUPTED else end
    stretches = [
        ("waiting", since, run["claimed_at"]),
        ("preparing", run["claimed_at"], started),
        ("running", started, lost),
        ("lost", lost, end),
    ]
    waited_s = (run["claimed_at"] - since).total_seconds()
    return TimelineRow(_placed(stretches, begin, scale), run, waited_s)


def _placed(
    stretches: Sequence[tuple[str, datetime, datetime]], begin: datetime, scale: float
) -> list[Bar]:
    bars = []
    for kind, start, end in stretches:
        seconds = (end - start).total_seconds()
        if seconds > 0:
            x = min((start - begin).total_seconds() * scale, WIDTH - LEAST)
            width = min(max(seconds * scale, LEAST), WIDTH - x)
            bars.append(Bar(kind, round(x, 1), round(width, 1), seconds))
    return bars


def _last(job: JobStatus, runs: Sequence[Row]) -> datetime:
    ends = [run["finished_at"] for run in runs if run["finished_at"]]
    last: datetime = max([*ends, job.finished_at or job.submitted_at])
    return last
