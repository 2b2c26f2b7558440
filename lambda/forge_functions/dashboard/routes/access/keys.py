"""Keys and sessions, for admins, and invitations."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Form, Request, Response
from forge_schema.model.admin import invitation_line, open_invitations, people_of
from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import Text
from forge_schema.model.states import Role
from forge_schema.service.admin import INVITATION_LASTS, invite
from pydantic import BaseModel, Field

from forge_functions.dashboard.formats import fault_of
from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.routes.new_worker import EXPIRIES, Expiry
from forge_functions.dashboard.session import FormWord, ReadsAll, RulesByPage, Visitor
from forge_functions.dashboard.words import t
from forge_functions.joining import fingerprint_of
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter(prefix="/keys")
PAGE = "/keys"
MOST_PEOPLE = 100


class Invitations(BaseModel):
    """The fields of the form as typed."""

    people: Annotated[Text, Field(max_length=20_000)] = ""
    role: Role = Role.SUBMITTER
    expiry: Expiry = Expiry.WEEK


@router.get("")
def keys(request: Request, who: ReadsAll, shared: Shared) -> Response:
    """Show the keys and the sessions that are valid, newest first."""
    return _shown(request, who, shared, Invitations())


@router.post("/invite")
def invite_people(
    request: Request, who: RulesByPage, shared: Shared, form: Annotated[Invitations, Form()]
) -> Response:
    """Make an invitation for each person, and show the lines once.

    Where one fails, the lines of those before are shown, and the others stay in the form.
    """
    admin, url = shared.service(who).admin, shared.url(str(request.base_url)).rstrip("/")
    lasts = form.expiry.lasts or INVITATION_LASTS
    lines: list[tuple[str, str]] = []
    left = typed = form.people.splitlines()
    try:
        people = people_of(form.people)[:MOST_PEOPLE]
        if not people:
            return _shown(request, who, shared, form, fault=t("Name somebody."))
        trust = fingerprint_of(shared.settings)
        for number, owner, team in people:
            made = invite(admin, owner, form.role, team=team, lasts=lasts)
            lines.append((owner, invitation_line(url, made.text, trust)))
            left = typed[number:]
    except ForgeError as error:
        rest = form.model_copy(update={"people": "\n".join(left)})
        return _shown(request, who, shared, rest, lines=lines, fault=fault_of(error))
    return _shown(request, who, shared, Invitations(), lines=lines)


@router.post("/revoke")
def revoke(request: Request, who: RulesByPage, shared: Shared, key: FormWord) -> Response:
    """Revoke a key or end a session."""
    admin = shared.service(who).admin
    admin.revoke_key(key)
    keys = admin.api_keys()
    owner = next((one.owner for one in keys if one.id == key and not one.acts_for), "")
    if open_invitations(keys, owner, who.now):
        still = t("It is over. {owner} can still accept an invitation in the list.", owner=owner)
        return after(request, PAGE, still)
    return after(request, PAGE, t("It is over."))


def _shown(
    request: Request,
    who: Visitor,
    shared: Services,
    form: Invitations,
    *,
    lines: list[tuple[str, str]] | None = None,
    fault: str = "",
) -> Response:
    api_keys = shared.service(who).admin.api_keys()
    valid = [
        key
        for key in api_keys
        if key.revoked_at is None and (key.expires_at is None or key.expires_at > who.now)
    ]
    # A line that was made is shown, whatever failed after it.
    status = HTTPStatus.UNPROCESSABLE_ENTITY if fault and not lines else HTTPStatus.OK
    shown = page(
        request, who, "keys.html", status, keys=valid, form=form, lines=lines or [], fault=fault,
        roles=list(Role), expiries=[one for one in EXPIRIES if one != Expiry.NEVER],
    )  # fmt: skip
    if lines:
        shown.headers["Cache-Control"] = "no-store"
    return shown
