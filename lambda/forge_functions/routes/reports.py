"""Reports: the reporting views, which know all owners."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from forge_schema.jobs import Jobs
from forge_schema.statements import views
from forge_schema.wire_fields import Word

from forge_functions.auth.caller import Admin
from forge_functions.errors import problems
from forge_functions.records import Items, Rows
from forge_functions.services import Shared

router = APIRouter(prefix="/api/reports", tags=["reports"], responses=problems(401, 403))
MOST = 10_000


@router.get("")
def list_reports(_who: Admin) -> Items[str]:
    """List the reports' names."""
    return Items(items=views())


@router.get("/{name}", response_model=Items[dict[str, Any]], responses=problems(404))
def report(
    _who: Admin, shared: Shared, name: Word, count: Annotated[int, Query(ge=1, le=MOST)] = 1000
) -> Rows:
    """Return the rows of a report, at most `count` of them."""
    return {"items": Jobs(shared.database).report(name, count=count)}
