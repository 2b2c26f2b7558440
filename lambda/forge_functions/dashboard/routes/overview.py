"""The first page: health, waiting and running jobs, throughput."""

from urllib.parse import urlencode

from fastapi import Request, Response
from forge_schema.database.pool import Row
from forge_schema.job_filter import parse
from forge_schema.model.overview import Overview
from forge_schema.read import job_pages

from forge_functions.dashboard.job_form import JobForm
from forge_functions.dashboard.page import page
from forge_functions.dashboard.session import SeesPages, Visitor
from forge_functions.dashboard.words import t
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter()
JOBS = 8
FAILURES = 5
FAILED = "state:failed since:1d"


@router.get("/")
def overview(request: Request, who: SeesPages, shared: Shared) -> Response:
    """Show the overview. Non-admins see only their own jobs."""
    now = shared.service(who).overview(jobs=JOBS)
    return page(
        request,
        who,
        "overview.html",
        now=now,
        checks=shared.health.findings(),
        chart=_chart(now),
        failed=_failed(shared, who),
        failed_at=f"/jobs?{urlencode({'q': FAILED})}",
        first=not any((*now.states.values(), *now.ended.values())) and not _newest(shared, who),
        sample=JobForm.fresh(),
    )


def _failed(shared: Services, who: Visitor) -> list[Row]:
    """Return the failed jobs that ended last."""
    newest = _newest(shared, who, FAILED)
    return sorted(newest, key=lambda job: job["finished_at"], reverse=True)[:FAILURES]


def _newest(shared: Services, who: Visitor, text: str = "") -> list[Row]:
    return job_pages.page(shared.database, parse(text), scope=who.scope).jobs


def _chart(now: Overview) -> dict[str, object]:
    minutes = now.throughput
    failed = [minute.failed for minute in minutes]
    # The bars of the next ones are drawn over each.
    ended = [m.succeeded + m.failed for m in minutes]
    all_of_them = [m.succeeded + m.failed + m.cancelled for m in minutes]
    series = [
        {"label": t("Cancelled"), "values": all_of_them, "tone": "--line-2"},
        {"label": t("Succeeded"), "values": ended, "tone": "--chart-3"},
        {"label": t("Failed"), "values": failed, "tone": "--bad"},
    ]
    return {"x": [minute.at.timestamp() for minute in minutes], "series": series}
