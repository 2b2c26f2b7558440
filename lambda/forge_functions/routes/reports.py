"""Reports. Non-admins see only their own rows, in reports divided by owner."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from forge_schema.model.fields import Word
from pydantic import Field

from forge_functions.auth.roles import AsViewer
from forge_functions.errors import problems
from forge_functions.items import Items
from forge_functions.middleware.bodies import Body

router = APIRouter(prefix="/api/v1/reports", tags=["reports"], responses=problems(401, 403))
MOST = 10_000


class Wanted(Body):
    """Which rows: since an age or a time, grouped by comma-separated columns."""

    since: Annotated[Word | None, Field(examples=["7d", "2026-11-01"])] = None
    by: Annotated[Word | None, Field(examples=["owner,queue"])] = None
    count: Annotated[int, Field(ge=1, le=MOST)] = 1000


@router.get("")
def list_reports(service: AsViewer) -> Items[str]:
    """List the names of the reports that the caller may read."""
    return Items(items=service.reports())


@router.get("/{name}", responses=problems(404, 422))
def report(
    service: AsViewer, name: Word, wanted: Annotated[Wanted, Query()]
) -> Items[dict[str, Any]]:
    """Return the rows of a report, or of its groups. Non-admins see only their own."""
    by = [column.strip() for column in (wanted.by or "").split(",") if column.strip()]
    return Items(items=service.report(name, since=wanted.since, by=by, count=wanted.count))
