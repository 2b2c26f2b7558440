"""Reports: the reporting views; who is no admin reads the own owner's rows, where rows have one."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from forge_schema.model.fields import Word
from forge_schema.read.report import REPORTS
from forge_schema.read.reports import Reports
from forge_schema.read.reports import report as known
from pydantic import Field

from forge_functions.auth.caller import Viewer, forbidden
from forge_functions.errors import problems
from forge_functions.items import Items, Rows
from forge_functions.middleware.bodies import Body
from forge_functions.services import Shared

router = APIRouter(prefix="/api/reports", tags=["reports"], responses=problems(401, 403))
MOST = 10_000


class Wanted(Body):
    """Which rows: since an age or a time, grouped by columns with commas between them."""

    since: Annotated[Word | None, Field(examples=["7d", "2026-11-01"])] = None
    by: Annotated[Word | None, Field(examples=["owner,queue"])] = None
    count: Annotated[int, Field(ge=1, le=MOST)] = 1000


@router.get("")
def list_reports(who: Viewer) -> Items[str]:
    """List the names of the reports that the caller may read."""
    return Items(items=[name for name, report in REPORTS.items() if who.admin or report.owned])


@router.get("/{name}", response_model=Items[dict[str, Any]], responses=problems(404, 422))
def report(who: Viewer, shared: Shared, name: Word, wanted: Annotated[Wanted, Query()]) -> Rows:
    """Return the rows of a report, or of its groups; to anybody but an admin, their owner's own."""
    if not known(name).owned and not who.admin:
        raise forbidden(f"the report {name} tells of all owners, which is for the role admin")
    rows = Reports(shared.database).rows(
        name,
        since=wanted.since,
        by=[column.strip() for column in (wanted.by or "").split(",") if column.strip()],
        owner=None if who.admin else who.owner,
        count=wanted.count,
    )
    return {"items": rows}
