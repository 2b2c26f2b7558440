"""Reports: the reporting views as tables, and as CSV."""

from collections.abc import Sequence
from decimal import Decimal
from io import StringIO
from typing import Annotated

from fastapi import Query, Request, Response
from forge_schema.database.pool import Row
from forge_schema.model.fields import Text, Word
from forge_schema.model.reading import REPORT_SINCE
from forge_schema.read.report_definitions import REPORTS, Report
from forge_schema.read.reports import report as known
from forge_schema.tables import names_of, write_csv
from pydantic import Field

from forge_functions.dashboard.page import page
from forge_functions.dashboard.visit.session import Visitor
from forge_functions.dashboard.visit.visitor import SeesPages
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter()
SHOWN = 200
SAVED = 10_000
Since = Annotated[Text | None, Field(max_length=40), Query()]
By = Annotated[list[Word] | None, Query(max_length=12)]


@router.get("/reports")
def reports(request: Request, who: SeesPages, shared: Shared) -> Response:
    """List the reports that a visitor may read."""
    readable = {name: REPORTS[name] for name in shared.service(who).reports()}
    return page(request, who, "reports.html", reports=readable)


@router.get("/reports/{name}.csv")
def save(
    who: SeesPages, shared: Shared, name: Word, since: Since = None, by: By = None
) -> Response:
    """Return a report as CSV."""
    rows = _rows(who, shared, name, since, by or [], SAVED + 1)
    cut = f"-first-{SAVED}" if len(rows) > SAVED else ""
    return csv_answer(rows[:SAVED], f"{name}{cut}")


def csv_answer(rows: Sequence[Row], name: str) -> Response:
    """Return rows as a CSV file to be saved."""
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    text = StringIO()
    write_csv(rows, names_of(rows), text)
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/reports/{name}")
def report(
    request: Request,
    who: SeesPages,
    shared: Shared,
    name: Word,
    *,
    since: Since = None,
    by: By = None,
) -> Response:
    """Show the first rows of a report."""
    rows = _rows(who, shared, name, since, by or [], SHOWN + 1)
    return page(
        request,
        who,
        "report.html",
        name=name,
        about=known(name),
        since=_bound(known(name), since) or "",
        by=by or [],
        rows=rows[:SHOWN],
        more=len(rows) > SHOWN,
        numeric=_numeric(rows),
        csv=f"/reports/{name}.csv?{request.url.query}",
    )


def _bound(report: Report, since: str | None) -> str | None:
    if report.time is None:
        return None
    return since or (None if report.now else REPORT_SINCE)


def _rows(  # noqa: PLR0917 - the routes' parameters in their order
    who: Visitor, shared: Services, name: str, since: str | None, by: Sequence[str], count: int
) -> list[Row]:
    since = _bound(known(name), since)
    return shared.service(who).report(name, since=since, by=by, count=count)


def _numeric(rows: Sequence[Row]) -> set[str]:
    return {name for name in (rows[0] if rows else ()) if _counts([row[name] for row in rows])}


def _counts(values: Sequence[object]) -> bool:
    numbers = [value for value in values if value is not None]
    return bool(numbers) and all(isinstance(value, int | float | Decimal) for value in numbers)
