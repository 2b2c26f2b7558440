"""What jobs found out, through a server."""

from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import quote

from forge_schema.job_filter import parse
from forge_schema.model.results import (
    MOST_RUNS,
    Experiment,
    GroupedBy,
    JobTest,
    LastMetric,
    MetricLine,
    Result,
    Run,
    RunGroups,
    Runs,
    Series,
    SweepCancelled,
    SweepPoint,
    drawn_metric,
    in_order,
    require_columns,
)

from forge_client.errors import as_client_error
from forge_client.findings import PAGE
from forge_client.http.job_path import job_path
from forge_client.http.transport import Transport

QUEUE = "/api/v1/queue"
SWEEPS = f"{QUEUE}/sweeps"


class HttpFindings:
    """Asks a server.

    Args:
        transport: how to reach it.
        owner: whose sweeps are meant unless another's are; None is the key's owner.
    """

    def __init__(self, transport: Transport, *, owner: str | None) -> None:
        self._transport = transport
        self._owner = owner

    def result(self, job_id: int, *, rank: int = 0) -> Result:
        answer = self._transport.get(f"{job_path(job_id)}/result", rank=rank or None)
        return self._transport.record(Result, answer)

    def tests(
        self,
        job_id: int,
        *,
        attempt: int | None = None,
        verdicts: Sequence[str] | None = None,
        after: int = -1,
    ) -> list[JobTest]:
        answer = self._transport.get(
            f"{job_path(job_id)}/tests",
            attempt=attempt,
            verdict=None if verdicts is None else list(verdicts),
            after=after,
            count=PAGE,
        )
        return self._transport.records(JobTest, answer)

    def series(
        self,
        job_id: int,
        *,
        attempt: int | None = None,
        rank: int = 0,
        keys: Sequence[str] | None = None,
        points: int = 500,
        x: Literal["step", "time"] = "step",
        since: float | None = None,
        until: float | None = None,
        contains: str | None = None,
    ) -> Series:
        answer = self._transport.get(
            f"{job_path(job_id)}/series",
            attempt=attempt,
            rank=rank,
            keys=list(keys) if keys else None,
            points=points,
            x=x,
            since=since,
            until=until,
            contains=contains,
        )
        return self._transport.record(Series, answer)

    def metrics(
        self,
        job_id: int,
        *,
        after: tuple[int, int] = (0, -1),
        rank: int = 0,
        attempt: int | None = None,
    ) -> list[MetricLine]:
        token, number = after
        answer = self._transport.get(
            f"{job_path(job_id)}/metrics",
            token=token,
            number=number,
            rank=rank,
            attempt=attempt,
        )
        return self._transport.records(MetricLine, answer)

    def last_metrics(
        self, job_id: int, *, rank: int = 0, attempt: int | None = None
    ) -> list[LastMetric]:
        path = f"{job_path(job_id)}/metrics/last"
        answer = self._transport.get(path, rank=rank, attempt=attempt)
        return self._transport.records(LastMetric, answer)

    def runs(
        self,
        query: str = "",
        *,
        owner: str | None = None,
        sort: str | None = None,
        descending: bool = False,
        curve: Sequence[str] = (),
        before: int | None = None,
        count: int = PAGE,
    ) -> Runs:
        asked = {"q": self._query(query), "owner": owner, "curve": curve or None}
        if count <= PAGE:
            how = {"sort": sort, "descending": descending or None, "before": before, "count": count}
            return self._transport.record(
                Runs, self._transport.get(f"{QUEUE}/runs", **asked, **how)
            )
        # More than one answer holds: all are read, and sorted here.
        most = min(count, MOST_RUNS) if sort is None else MOST_RUNS
        found = self._all_runs(asked, before, most)
        if sort is None:
            return found
        with as_client_error():
            require_columns(found.items, [sort])
        items = in_order(found.items, sort, descending=descending)[:count]
        return found.model_copy(update={"items": items})

    def _all_runs(self, asked: dict[str, Any], before: int | None, most: int) -> Runs:
        items: list[Run] = []
        more = True
        while more and len(items) < most:
            page = {"before": before, "count": min(PAGE, most - len(items))}
            answer = self._transport.get(f"{QUEUE}/runs", **asked, **page)
            found = self._transport.record(Runs, answer)
            items += found.items
            # The same metric is drawn of all.
            drawn = drawn_metric(items, asked["curve"] or ())
            asked = {**asked, "curve": [drawn] if drawn else None}
            more = found.more and bool(found.items)
            before = items[-1].job_id if items else None
        return Runs(items=items, found=len(items), more=more)

    def run_groups(self, query: str = "", *, by: GroupedBy, owner: str | None = None) -> RunGroups:
        asked = {"q": self._query(query), "owner": owner, "by": by}
        answer = self._transport.get(f"{QUEUE}/run-groups", **asked)
        return self._transport.record(RunGroups, answer)

    def _query(self, text: str) -> str | None:
        with as_client_error():
            wanted = parse(text)
        return str(wanted.seen_by(self._owner) if self._owner else wanted) or None

    def experiments(self, *, owner: str | None = None) -> list[Experiment]:
        answer = self._transport.get(f"{QUEUE}/experiments", owner=owner)
        return self._transport.records(Experiment, answer)

    def sweep(self, name: str, *, owner: str | None = None) -> dict[str, int]:
        answer = self._transport.get(_path(name), owner=owner or self._owner)
        states: dict[str, int] = self._transport.field(answer, "states")
        return states

    def points(
        self, name: str, *, owner: str | None = None, after: int = 0, count: int = PAGE
    ) -> list[SweepPoint]:
        answer = self._transport.get(
            f"{_path(name)}/points", owner=owner or self._owner, after=after, count=count
        )
        return self._transport.records(SweepPoint, answer)

    def cancel_sweep(self, name: str, *, owner: str | None = None) -> SweepCancelled:
        path = f"{_path(name)}/cancel{self._whose(owner)}"
        answer = self._transport.send("POST", path, again=True)
        return self._transport.record(SweepCancelled, answer)

    def set_parallel(self, name: str, parallel: int, *, owner: str | None = None) -> dict[str, int]:
        path, body = f"{_path(name)}{self._whose(owner)}", {"parallel": parallel}
        answer = self._transport.send("PATCH", path, body, again=True)
        states: dict[str, int] = self._transport.field(answer, "states")
        return states

    def _whose(self, owner: str | None) -> str:
        whose = owner or self._owner
        return f"?owner={quote(whose, safe='')}" if whose else ""


def _path(name: str) -> str:
    return f"{SWEEPS}/{quote(name, safe='')}"
