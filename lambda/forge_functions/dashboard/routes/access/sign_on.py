"""Login with the account of an OpenID Connect issuer."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from forge_functions.auth import sign_on
from forge_functions.auth.authentication import note_person, noting_no_role
from forge_functions.dashboard.routes.access.login import began, login_page, note_refusal
from forge_functions.dashboard.visit import session
from forge_functions.dashboard.visit.visitor import local
from forge_functions.errors import Refused
from forge_functions.lazy_routes import LazyRouter
from forge_functions.services import Services, Shared

router = LazyRouter()
COOKIE = "forge_sign_on"
PATH = "/login/sso"
ANOTHER = "This login was begun in another browser or too long ago. Try again."
REFUSED = "The single sign-on did not accept this login. Try again."


@router.get(PATH)
def begin(
    request: Request, shared: Shared, to: Annotated[str, Query(alias="next")] = "/"
) -> Response:
    """Lead to the issuer's login."""
    if not shared.settings.oidc_client_id:
        raise Refused(HTTPStatus.NOT_FOUND, "not_found", "this server has no single sign-on")
    if not session.kept(request, shared):
        return login_page(request, shared, to)
    begun = sign_on.begin(local(to))
    answer = RedirectResponse(sign_on.address(shared, begun, _back(request, shared)))
    answer.set_cookie(
        COOKIE,
        begun.sealed(shared),
        max_age=sign_on.LASTS_S,
        path=PATH,
        secure=session.secure(request, shared),
        httponly=True,
        samesite="lax",
    )
    return answer


@router.get(f"{PATH}/done")
def done(request: Request, shared: Shared, state: str = "", code: str = "") -> Response:
    """Begin the session of a person who comes back from the issuer."""
    begun = sign_on.opened(shared, request.cookies.get(COOKIE, ""))
    if begun is None or not shared.settings.oidc_client_id:
        return login_page(request, shared, "/", ANOTHER)
    try:
        with noting_no_role(shared):
            person = sign_on.finish(shared, begun, state, code, _back(request, shared))
    except Refused as error:
        note_refusal(request, shared, "", "sign-on")
        return login_page(request, shared, begun.to, error.message, error.status)
    if person is None:
        note_refusal(request, shared, "", "sign-on")
        return login_page(request, shared, begun.to, REFUSED)
    note_person(shared, person)
    who = (person.actor, person.owner, person.role)
    answer = began(request, shared, who, begun.to)
    answer.delete_cookie(COOKIE, path=PATH)
    return answer


def _back(request: Request, shared: Services) -> str:
    return f"{shared.url(str(request.base_url))}{PATH}/done"
