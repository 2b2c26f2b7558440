"""Single sign-on in a browser: OpenID Connect's authorization code flow, with PKCE."""

import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote, urlencode

import httpx
import jwt
import structlog
from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse
from forge_schema.http_client import challenge_of, open_client, tls_context
from forge_schema.proxies import ProxyUnusable

from forge_functions.auth import short_token
from forge_functions.auth.authentication import note_person, noting_no_role
from forge_functions.dashboard import session
from forge_functions.dashboard.routes.access.login import began, login_page, note_refusal
from forge_functions.dashboard.session import local
from forge_functions.errors import Refused
from forge_functions.issued_tokens import TIMEOUT_S
from forge_functions.lazy_routes import LazyRouter
from forge_functions.oidc import Person
from forge_functions.services import Services, Shared

PURPOSE = b"forge single sign-on"
SCOPES = "openid profile email"
LASTS_S = 600

log = structlog.get_logger(__name__)
router = LazyRouter()
COOKIE = "forge_sign_on"
PATH = "/login/sso"
ANOTHER = "This login was begun in another browser or too long ago. Try again."
REFUSED = "The single sign-on did not accept this login. Try again."


@dataclass(frozen=True, slots=True)
class Begun:
    """A login under way. Only the browser that began it has this, in a cookie."""

    state: str
    nonce: str
    verifier: str
    to: str

    def sealed(self, shared: Services) -> str:
        """Return it as the text of a cookie."""
        until = datetime.now(UTC) + timedelta(seconds=LASTS_S)
        claims = {**asdict(self), "exp": until}
        return jwt.encode(claims, short_token.secret(shared, PURPOSE), short_token.ALGORITHM)


def begin(to: str) -> Begun:
    """Begin a login that leads to a page of this server."""
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    return Begun(state, nonce, verifier, to)


def opened(shared: Services, text: str) -> Begun | None:
    """Return the login of a cookie; None if it was not begun here, or too long ago."""
    secret = short_token.secret(shared, PURPOSE)
    try:
        claims = jwt.decode(text, secret, [short_token.ALGORITHM])
        claims.pop("exp")
        return Begun(**claims)
    except (jwt.InvalidTokenError, KeyError, TypeError):
        return None


def address(shared: Services, begun: Begun, back: str) -> str:
    """Return where the issuer asks the person to log in.

    Raises:
        Refused: 503 if the issuer does not answer.
    """
    params = {
        "response_type": "code",
        "client_id": shared.settings.oidc_client_id,
        "redirect_uri": back,
        "scope": SCOPES,
        "state": begun.state,
        "nonce": begun.nonce,
        "code_challenge": challenge_of(begun.verifier),
        "code_challenge_method": "S256",
    }
    at = shared.issuer.sign_on.endpoint("authorization_endpoint")
    return f"{at}{'&' if '?' in at else '?'}{urlencode(params)}"


def finish(shared: Services, begun: Begun, state: str, code: str, back: str) -> Person | None:
    """Return who logged in; None if the issuer's answer is not one to this login.

    Raises:
        Refused: 403 for a person without a role here, 503 if the issuer does not answer.
    """
    if not compare_digest(state.encode("utf-8", "replace"), begun.state.encode()):
        return None
    token = _exchanged(shared, code, begun.verifier, back)
    return shared.issuer.signed_on(token, begun.nonce) if token else None


def _exchanged(shared: Services, code: str, verifier: str, back: str) -> str | None:
    """Exchange the code for the ID token; None if the issuer refuses."""
    settings = shared.settings
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": back,
        "client_id": settings.oidc_client_id,
        "code_verifier": verifier,
    }
    secret = settings.oidc_client_secret.get_secret_value()
    own = (quote(settings.oidc_client_id, safe=""), quote(secret, safe="")) if secret else None
    at = shared.issuer.sign_on.endpoint("token_endpoint")
    try:
        with open_client("forge-server", tls_context(), httpx.Timeout(TIMEOUT_S)) as client:
            answer = client.post(at, data=form, auth=own or httpx.USE_CLIENT_DEFAULT)
        token = answer.raise_for_status().json()["id_token"]
    except httpx.HTTPStatusError as error:
        log.warning("sign_on_refused", status=error.response.status_code)
        return None
    except (httpx.HTTPError, ProxyUnusable, ValueError, KeyError, TypeError) as error:
        raise shared.issuer.sign_on.failed(error) from error
    return token if isinstance(token, str) else None


@router.get(PATH)
def lead_to_issuer(
    request: Request, shared: Shared, to: Annotated[str, Query(alias="next")] = "/"
) -> Response:
    """Lead to the issuer's login."""
    if not shared.settings.oidc_client_id:
        raise Refused(HTTPStatus.NOT_FOUND, "not_found", "this server has no single sign-on")
    if not session.kept(request, shared):
        return login_page(request, shared, to)
    begun = begin(local(to))
    answer = RedirectResponse(address(shared, begun, _back(request, shared)))
    answer.set_cookie(
        COOKIE,
        begun.sealed(shared),
        max_age=LASTS_S,
        path=PATH,
        secure=session.secure(request, shared),
        httponly=True,
        samesite="lax",
    )
    return answer


@router.get(f"{PATH}/done")
def come_back(request: Request, shared: Shared, state: str = "", code: str = "") -> Response:
    """Begin the session of a person who comes back from the issuer."""
    begun = opened(shared, request.cookies.get(COOKIE, ""))
    if begun is None or not shared.settings.oidc_client_id:
        return login_page(request, shared, "/", ANOTHER)
    try:
        with noting_no_role(shared):
            person = finish(shared, begun, state, code, _back(request, shared))
    except Refused as error:
        note_refusal(request, shared, "", "sign-on")
        return login_page(request, shared, begun.to, error.message, error.status)
    if person is None:
        note_refusal(request, shared, "", "sign-on")
        return login_page(request, shared, begun.to, REFUSED)
    note_person(shared, person)
    who = (person.actor, person.owner, person.role)
    answer = began(request, shared, who, begun.to, everyone=person.everyone)
    answer.delete_cookie(COOKIE, path=PATH)
    return answer


def _back(request: Request, shared: Services) -> str:
    return f"{shared.url(str(request.base_url))}{PATH}/done"
