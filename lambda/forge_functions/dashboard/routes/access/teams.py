"""Teams: those that a visitor sees, and one with its people, their jobs and what they used."""

from typing import Annotated
from urllib.parse import quote

from fastapi import Form, Request, Response
from forge_schema.job_filter import quoted
from forge_schema.model.admin import TeamChanges
from forge_schema.model.fields import Text, Word
from pydantic import BaseModel, Field

from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.session import RulesByPage, SeesPages
from forge_functions.dashboard.words import t
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Shared

router = LazyRouter(prefix="/teams")
Jobs = Annotated[int | None, Field(ge=0, le=1_000_000)]
Spending = Annotated[float | None, Field(ge=0, le=1e12, allow_inf_nan=False)]


class ChangedTeam(BaseModel):
    """Who joins and leaves a team, and its limits if it is `limited`: an empty one is none."""

    name: Word
    join: Text = ""
    leave: Text = ""
    limited: bool = False
    max_jobs: Jobs = None
    max_gpus: Jobs = None
    gpu_hours_per_month: Spending = None
    cost_per_month: Spending = None

    def changes(self) -> TeamChanges:
        """Return what is to change; the rest stays."""
        limits = self.model_dump(exclude={"name", "join", "leave", "limited"})
        joining = self.join.replace(",", " ").split()
        leaving = [self.leave] if self.leave else []
        return TeamChanges(join=joining, leave=leaving, **(limits if self.limited else {}))


@router.get("")
def teams(request: Request, who: SeesPages, shared: Shared) -> Response:
    """List the teams whose jobs the visitor sees, and their owners with limits of their own."""
    service = shared.service(who)
    return page(
        request, who, "teams.html", teams=service.teams(), owners=service.admin.owner_limits()
    )


@router.post("/change")
def change(
    request: Request, who: RulesByPage, shared: Shared, form: Annotated[ChangedTeam, Form()]
) -> Response:
    """Change a team, which is made unless there is one."""
    shared.service(who).admin.change_team(form.name, form.changes())
    return after(request, f"/teams/{quote(form.name)}", t("The team is changed."))


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
