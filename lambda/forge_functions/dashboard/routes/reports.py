"""Reports: the reporting views as tables, and as CSV."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cached_property
from http import HTTPStatus
from io import StringIO
from typing import Annotated, Any

from fastapi import Query, Request, Response
from forge_schema.database.pool import Row
from forge_schema.model.fields import Text, Word
from forge_schema.model.quantities import HOUR
from forge_schema.model.reading import REPORT_SINCE
from forge_schema.read.report_definitions import REPORTS, Report, ReportGroup, over_time
from forge_schema.read.reports import ReportColumnUnknown, SinceInvalid, meanings
from forge_schema.read.reports import report as known
from forge_schema.tables import names_of, write_csv
from pydantic import Field

from forge_functions.dashboard.formats import fault_of, heading, is_duration, sorted_word
from forge_functions.dashboard.page import page
from forge_functions.dashboard.session import SeesPages, Visitor
from forge_functions.dashboard.words import t
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter()
SHOWN = 200
SAVED = 10_000
# Where a value of a column leads.
LINKS = {
    **dict.fromkeys(("job_id", "next_job_id", "displaced_by"), "/jobs/"),
    "worker_id": "/workers/",
    **{key: f"/jobs?q={key}:" for key in ("owner", "queue", "team", "sweep", "experiment")},
}
Since = Annotated[Text | None, Field(max_length=40), Query()]
By = Annotated[list[Word] | None, Query(max_length=12)]
Sort = Annotated[Word | None, Query()]


@dataclass(frozen=True)
class Sheet:
    """A report's rows, all of them if it is `whole`; in the order of a column if one is named."""

    name: str
    report: Report
    found: Sequence[Row]
    whole: bool
    sort: str | None
    down: bool

    @cached_property
    def rows(self) -> list[Row]:
        """The first rows."""
        column = self.sort
        if column is None or column not in self.columns:
            return list(self.found[:SHOWN])
        known = [row for row in self.found if row[column] is not None]
        known.sort(key=lambda row: _sortable(row[column]), reverse=self.down)
        return [*known, *(row for row in self.found if row[column] is None)][:SHOWN]

    @property
    def more(self) -> bool:
        """Whether there are others."""
        return not self.whole or len(self.found) > len(self.rows)

    @property
    def priced(self) -> bool:
        """Whether anything has a cost."""
        return any(row.get("cost") for row in self.found)

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns that have a value."""
        return [name for name in self._all if any(row[name] is not None for row in self.found)]

    @property
    def empty(self) -> list[str]:
        """The names of the others."""
        return [name for name in self._all if name not in self.columns]

    @property
    def _all(self) -> list[str]:
        return list(self.found[0]) if self.found else []

    @property
    def meanings(self) -> dict[tuple[str, ...], str]:
        """What the columns mean."""
        return meanings(self.name, self.columns)

    @cached_property
    def numeric(self) -> set[str]:
        """Those with numbers only."""
        return {name for name in self.columns if _counts([row[name] for row in self.found])}

    @cached_property
    def total(self) -> dict[str, Any]:
        """The sums of all rows, of the columns that can be added up; none unless all are here."""
        if not self.whole:
            return {}
        return {
            name: sum(row[name] for row in self.found if row[name] is not None)
            for name in self.report.added_up(self.name, self.columns)
            if name in self.numeric
        }

    @cached_property
    def drawn(self) -> str | None:
        """The column that has bars: the one they are sorted by, or the first that has a total."""
        return self.sort if self.sort in self.total else next(iter(self.total), None)

    @cached_property
    def over_time(self) -> dict[str, Any] | None:
        """The same column by days or months, as a chart has it; None if it is of one."""
        over = over_time(self.found, self.drawn) if self.drawn in self.total else {}
        if not over or self.drawn is None:
            return None
        at = [datetime.combine(day, time(), UTC).timestamp() for day in over]
        per = HOUR if is_duration(self.drawn) else 1
        values = [round(value / per, 3) for value in over.values()]
        return {"x": at, "series": [{"label": self.drawn, "values": values, "tone": "--chart-1"}]}

    @property
    def charted(self) -> str:
        """The title of that chart, with its unit."""
        title = heading(self.drawn or "")
        return t("{title}, in hours", title=title) if is_duration(self.drawn or "") else title

    @cached_property
    def _longest(self) -> float:
        return max(float(row[self.drawn or ""] or 0) for row in self.rows)

    def share(self, row: Row) -> float:
        """Return how long the bar of a row is, of the longest one."""
        return max(float(row[self.drawn or ""] or 0), 0) / self._longest if self._longest > 0 else 0

    def turn(self, column: str) -> dict[str, Any]:
        """Return the changes of the address that sort by a column, or the other way round."""
        down = column != self.sort or not self.down
        return {"sort": column, "down": "true" if down else None}

    def direction(self, column: str) -> str:
        """Return how the rows are sorted by a column, in the words of a table's heading."""
        return sorted_word(column, self.sort, down=self.down)


def _sortable(value: object) -> tuple[bool, Any]:
    if isinstance(value, int | float | Decimal):
        return False, value
    return True, value.isoformat() if isinstance(value, date) else str(value)


@router.get("/reports")
def reports(request: Request, who: SeesPages, shared: Shared) -> Response:
    """List the reports that a visitor may read."""
    readable = shared.service(who).reports()
    groups = {
        group.value: {name: REPORTS[name] for name in readable if REPORTS[name].group is group}
        for group in ReportGroup
    }
    return page(request, who, "reports.html", groups=groups)


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
    sort: Sort = None,
    down: bool = False,
) -> Response:
    """Show the first rows of a report."""
    # Groups are few; of all others, only those that are shown are read, unless they are sorted.
    most = SAVED if sort or by else SHOWN + 1
    rows, fault = [], ""
    try:
        rows = _rows(who, shared, name, since, by or [], most)
    except (SinceInvalid, ReportColumnUnknown) as error:
        fault = fault_of(error)
    return page(
        request,
        who,
        "report.html",
        HTTPStatus.UNPROCESSABLE_ENTITY if fault else HTTPStatus.OK,
        fault=fault,
        name=name,
        about=known(name),
        since=_bound(known(name), since) or "",
        by=by or [],
        sheet=Sheet(name, known(name), rows, len(rows) < most, sort, down),
        links=LINKS,
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


def _counts(values: Sequence[object]) -> bool:
    numbers = [value for value in values if value is not None]
    return bool(numbers) and all(isinstance(value, int | float | Decimal) for value in numbers)
