"""Teams and owners: who is in which, what they may have and used, and what runs of them."""

from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

from fastapi import Form, Request, Response
from forge_schema.job_filter import quoted
from forge_schema.model.admin import OwnerLimits, OwnerSettings, Team, TeamChanges, WhenSpent
from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import Text, Word
from forge_schema.service.admin import Admin
from pydantic import BaseModel, ValidationError

from forge_functions.dashboard.formats import fault_of
from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.session import FormWord, RulesByPage, SeesPages, Visitor
from forge_functions.dashboard.words import t
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter(prefix="/teams")
PAGE = "/teams"
INVALID = 422
COUNTS = ("max_jobs", "max_gpus", "guaranteed_gpus")
BUDGET = ("gpu_hours_per_month", "cost_per_month")
OF_OWNERS = ("approve_gpu_hours", "approve_cost", "weight")
DEFAULTS = {"weight": 1.0}
Kind = Literal["team", "owner"]


class Membership(BaseModel):
    """A team and its new owners as typed."""

    name: Text = ""
    owners: Text = ""


class LimitsForm(BaseModel):
    """The limits of a team or an owner as typed; an empty field means no limit."""

    of: Kind = "owner"
    name: Text = ""
    max_jobs: Text = ""
    max_gpus: Text = ""
    guaranteed_gpus: Text = ""
    gpu_hours_per_month: Text = ""
    cost_per_month: Text = ""
    when_spent: WhenSpent = "hold"
    approve_gpu_hours: Text = ""
    approve_cost: Text = ""
    weight: Text = ""

    @classmethod
    def filled(cls, of: Kind, name: str, now: Team | OwnerLimits | None) -> Self:
        """Return the form with the limits of now."""
        if now is None:
            return cls(of=of, name=name)
        had = now.model_dump(include={*COUNTS, *BUDGET, *OF_OWNERS}, exclude_none=True)
        texts = {field: f"{value:.15g}" for field, value in had.items()}
        return cls(of=of, name=name, when_spent=now.when_spent, **texts)

    def read(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the limits, and the faults by field."""
        numbers = dict.fromkeys(COUNTS, int) | dict.fromkeys(BUDGET, float)
        numbers |= dict.fromkeys(OF_OWNERS if self.of == "owner" else (), float)
        values: dict[str, Any] = {}
        faults = {}
        for field, number in numbers.items():
            text = getattr(self, field).strip()
            try:
                values[field] = number(text) if text else DEFAULTS.get(field)
            except ValueError:
                faults[field] = t("Write a number, or nothing.")
        if any(values.get(field) is not None for field in BUDGET):
            values["when_spent"] = self.when_spent
        return values, faults


@router.get("")
def teams(request: Request, who: SeesPages, shared: Shared, owner: Text = "") -> Response:
    """List the teams and owners whose jobs the visitor sees; an admin may choose an owner."""
    return _listed(request, who, shared, owner=owner)


@router.post("/join")
def join(
    request: Request, who: RulesByPage, shared: Shared, form: Annotated[Membership, Form()]
) -> Response:
    """Have owners join a team, which is made if it is new; they leave the one before."""
    name, owners = form.name.strip(), form.owners.replace(",", " ").split()
    try:
        if not (name and owners):
            return _listed(request, who, shared, form=form, fault=t("Name a team and somebody."))
        shared.service(who).admin.change_team(name, TeamChanges(join=owners))
    except ForgeError as error:
        return _listed(request, who, shared, form=form, fault=fault_of(error))
    return after(request, PAGE, t("The team is changed."))


@router.post("/leave")
def leave(
    request: Request, who: RulesByPage, shared: Shared, name: FormWord, owner: FormWord
) -> Response:
    """Take an owner out of a team."""
    shared.service(who).team(name)
    shared.service(who).admin.change_team(name, TeamChanges(leave=[owner]))
    return after(request, _page_of(name), t("The team is changed."))


@router.post("/remove")
def remove(request: Request, who: RulesByPage, shared: Shared, name: FormWord) -> Response:
    """Remove a team. Its owners and their jobs stay."""
    shared.service(who).admin.remove_team(name)
    return after(request, PAGE, t("The team is removed."))


@router.post("/limits")
def limit(
    request: Request, who: RulesByPage, shared: Shared, form: Annotated[LimitsForm, Form()]
) -> Response:
    """Set all limits of an owner, or of a team that exists."""
    values, faults = form.read()
    if form.of == "team":
        shared.service(who).team(form.name)
    faults = faults or _set(shared.service(who).admin, form, values)
    if not faults:
        to = PAGE if form.of == "owner" else _page_of(form.name)
        return after(request, to, t("The limits are set."))
    if form.of == "team":
        return _team(request, who, shared, form.name, limits=form, faults=faults)
    return _listed(request, who, shared, owner=form.name, limits=form, faults=faults)


def _set(admin: Admin, form: LimitsForm, values: dict[str, Any]) -> dict[str, str]:
    """Set the limits; return why they cannot be, by field."""
    try:
        if form.of == "team":
            admin.change_team(form.name, TeamChanges.model_validate(values))
        else:
            admin.limit_owner(form.name, OwnerSettings.model_validate(values))
    except ValidationError as error:
        return {str(one["loc"][0]): str(one["msg"]) for one in error.errors()}
    except ForgeError as error:
        return {"": fault_of(error)}
    return {}


@router.get("/{name:path}")
def team(request: Request, who: SeesPages, shared: Shared, name: Word) -> Response:
    """Show a team; one that the visitor does not see is not there."""
    return _team(request, who, shared, name)


def _listed(
    request: Request,
    who: Visitor,
    shared: Services,
    *,
    owner: str = "",
    limits: LimitsForm | None = None,
    faults: dict[str, str] | None = None,
    form: Membership | None = None,
    fault: str = "",
) -> Response:
    service = shared.service(who)
    owners = service.admin.owner_limits()
    chosen = next((one for one in owners if one.owner == owner), None)
    if owner and limits is None and who.admin:
        limits = LimitsForm.filled("owner", owner, chosen)
    return page(
        request, who, "teams.html", INVALID if fault or faults else 200, path=PAGE,
        teams=service.teams(), owners=owners, known=chosen is not None, limits=limits,
        faults=faults or {}, form=form or Membership(), fault=fault, term=_term,
    )  # fmt: skip


def _team(
    request: Request,
    who: Visitor,
    shared: Services,
    name: str,
    *,
    limits: LimitsForm | None = None,
    faults: dict[str, str] | None = None,
) -> Response:
    shown = shared.service(who).team(name)
    return page(
        request, who, "team.html", INVALID if faults else 200, path=_page_of(name),
        name=name, team=shown, limits=limits or LimitsForm.filled("team", name, shown),
        faults=faults or {}, term=_term,
    )  # fmt: skip


def _page_of(team: str) -> str:
    return f"{PAGE}/{quote(team)}"


def _term(key: str, value: str) -> str:
    return f"{key}:{quoted(value)}"
