"""The first page: health, waiting and running jobs, throughput."""

from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlencode

from fastapi import Request, Response
from forge_schema.database.pool import Row
from forge_schema.job_filter import parse
from forge_schema.model.overview import Overview
from forge_schema.read import job_pages
from forge_schema.read.jobs import Jobs
from forge_schema.read.overview import demand
from forge_schema.read.series import Span, use_over_time

from forge_functions.dashboard.formats import cause
from forge_functions.dashboard.history import History
from forge_functions.dashboard.job_form import JobForm
from forge_functions.dashboard.page import page
from forge_functions.dashboard.session import SeesPages, Visitor
from forge_functions.dashboard.words import t
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter()
JOBS = 8
CAUSES, NAMED = 5, 3
FAILED = "state:failed since:1d"
LATELY = timedelta(hours=1)
# So much of an hour is drawn even if less of it has anything.
LEAST_MINUTES = 15


@dataclass(frozen=True)
class Cause:
    """Jobs that failed in the same way, the one that ended last first."""

    jobs: list[Row]

    @property
    def newest(self) -> Row:
        """The one that ended last."""
        return self.jobs[0]

    def retried_by(self, who: Visitor) -> list[int]:
        """Return the ids of those that a visitor may retry."""
        return [job["job_id"] for job in self.jobs if who.changes(job["owner"])]


@router.get("/")
def overview(request: Request, who: SeesPages, shared: Shared, over: Span = Span.HOURS) -> Response:
    """Show the overview. Non-admins see only their own jobs."""
    now = shared.service(who).overview(jobs=JOBS)
    stuck = now.oldest is not None and _stuck(shared, now.oldest.job_id)
    causes = _causes(_newest(shared, who, FAILED))
    return page(
        request,
        who,
        "overview.html",
        now=now,
        stuck=stuck,
        unserved=_unserved(shared, who) if stuck else 0,
        checks=shared.health.findings(),
        chart=_chart(now),
        causes=causes[:CAUSES],
        count=len(causes),
        lately=bool(causes) and who.now - causes[0].newest["finished_at"] < LATELY,
        named=NAMED,
        failed_at=f"/jobs?{urlencode({'q': FAILED})}",
        spans=list(Span),
        history=lambda: History(
            over, use_over_time(shared.database, over, now=who.now, scope=who.scope)
        ),
        first=not any((*now.states.values(), *now.ended.values())) and not _newest(shared, who),
        sample=JobForm.fresh(),
    )


def _causes(failed: list[Row]) -> list[Cause]:
    """Return the jobs by what they say was wrong, what happened last first."""
    by_cause: dict[tuple[object, ...], list[Row]] = {}
    for job in sorted(failed, key=lambda job: job["finished_at"], reverse=True):
        same = (job["reason"], job["exit_code"], cause(job["detail"]))
        by_cause.setdefault(same, []).append(job)
    return [Cause(jobs) for jobs in by_cause.values()]


def _stuck(shared: Services, job_id: int) -> bool:
    return any(row["unservable"] for row in Jobs(shared.database).listed([job_id]))


def _unserved(shared: Services, who: Visitor) -> int:
    """Return how many jobs wait that no online worker could run."""
    wanted = demand(shared.database, scope=who.scope)
    return sum(row["waiting"] for row in wanted if not row["workers"])


def _newest(shared: Services, who: Visitor, text: str = "") -> list[Row]:
    return job_pages.page(shared.database, parse(text), scope=who.scope).jobs


def _chart(now: Overview) -> dict[str, object]:
    minutes = now.throughput
    first = next((i for i, minute in enumerate(minutes) if minute.jobs), 0)
    minutes = minutes[min(max(first - 1, 0), len(minutes) - LEAST_MINUTES) :]
    failed = [minute.failed for minute in minutes]
    # The bars of the next ones are drawn over each.
    ended = [m.succeeded + m.failed for m in minutes]
    all_of_them = [m.succeeded + m.failed + m.cancelled for m in minutes]
    series = [
        {"label": t("Cancelled"), "values": all_of_them, "tone": "--line-2", "state": "cancelled"},
        {"label": t("Succeeded"), "values": ended, "tone": "--chart-3", "state": "succeeded"},
        {"label": t("Failed"), "values": failed, "tone": "--bad", "state": "failed"},
    ]
    return {"x": [minute.at.timestamp() for minute in minutes], "series": series}
