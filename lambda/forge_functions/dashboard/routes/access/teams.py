"""Teams: those that a visitor sees, and one with its people, their jobs and what they used."""

from fastapi import Request, Response
from forge_schema.job_filter import quoted
from forge_schema.model.fields import Word

from forge_functions.dashboard.page import page
from forge_functions.dashboard.session import SeesPages
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Shared

router = LazyRouter(prefix="/teams")


@router.get("")
def teams(request: Request, who: SeesPages, shared: Shared) -> Response:
    """List the teams whose jobs the visitor sees."""
    return page(request, who, "teams.html", teams=shared.service(who).teams())


@router.get("/{name:path}")
def team(request: Request, who: SeesPages, shared: Shared, name: Word) -> Response:
    """Show a team; one that the visitor does not see is not there."""
    return page(
        request,
        who,
        "team.html",
        name=name,
        team=shared.service(who).team(name),
        term=lambda key, value: f"{key}:{quoted(value)}",
    )
