"""The first page: health, waiting and running jobs, throughput."""

from fastapi import APIRouter, Request, Response
from forge_schema.model.overview import Overview

from forge_functions.dashboard.page import page
from forge_functions.dashboard.visit.visitor import SeesPages
from forge_functions.dashboard.words import t
from forge_functions.services import Shared

router = APIRouter()
JOBS = 8


@router.get("/")
def overview(request: Request, who: SeesPages, shared: Shared) -> Response:
    """Show the overview. Non-admins see only their own jobs."""
    now = shared.service(who).overview(jobs=JOBS)
    checks = shared.health.findings()
    return page(request, who, "overview.html", now=now, checks=checks, chart=_chart(now))


def _chart(now: Overview) -> dict[str, object]:
    minutes = now.throughput
    failed = [minute.failed + minute.dead for minute in minutes]
    ended = [m.succeeded + bad for m, bad in zip(minutes, failed, strict=True)]
    series = [
        {"label": t("Finished"), "values": ended, "tone": "--chart-3"},
        {"label": t("Failed"), "values": failed, "tone": "--bad"},
    ]
    return {"x": [minute.at.timestamp() for minute in minutes], "series": series}
