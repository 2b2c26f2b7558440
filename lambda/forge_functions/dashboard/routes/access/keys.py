"""API keys and sessions, for admins: who may come in, and how to end it."""

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from forge_schema.model.fields import Word

from forge_functions.dashboard.page import after, page
from forge_functions.dashboard.visit.visitor import RulesByPage
from forge_functions.services import Shared

router = APIRouter()


@router.get("/keys")
def keys(request: Request, who: RulesByPage, shared: Shared) -> Response:
    """Show the keys and the sessions that are valid, newest first."""
    found = shared.service(who).admin.api_keys()
    valid = [
        key
        for key in found
        if key.revoked_at is None and (key.expires_at is None or key.expires_at > who.now)
    ]
    return page(request, who, "keys.html", keys=valid)


@router.post("/keys/revoke")
def revoke(
    request: Request, who: RulesByPage, shared: Shared, key: Annotated[Word, Form()]
) -> Response:
    """Revoke a key or end a session."""
    shared.service(who).admin.revoke_key(key)
    return after(request, "/keys", "It is over.")
