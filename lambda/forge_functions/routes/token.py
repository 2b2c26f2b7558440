"""Short-lived tokens from API keys."""

from datetime import timedelta
from http import HTTPStatus

from forge_schema.access.api_keys import Keys
from pydantic import BaseModel

from forge_functions.auth import short_token
from forge_functions.auth.authentication import AsViewer, unauthenticated
from forge_functions.errors import Refused, problems
from forge_functions.routes.guarded_route import Router
from forge_functions.services import Shared

router = Router(prefix="/api/v1", tags=["token"], responses=problems(401, 403))


class Token(BaseModel):
    """A JWT to send as a bearer token, and its validity in seconds."""

    token: str
    expires_in_s: int


@router.post("/token")
def token(service: AsViewer, shared: Shared) -> Token:
    """Create a short-lived token from the request's API key.

    It has the key's role, and becomes invalid when the key is rotated, revoked or expired.
    """
    who = service.caller
    if who.key_id is None:
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "forbidden",
            "tokens are made only from an API key, and this request has another credential",
            hint="send the API key itself",
        )
    key = Keys(shared.database, actor=who.actor).valid(who.key_id)
    if key is None:
        raise unauthenticated()
    lasts_s = shared.settings.token_lasts_s
    ends = key["now"] + timedelta(seconds=lasts_s)
    return Token(token=short_token.mint(shared, key, ends), expires_in_s=lasts_s)
