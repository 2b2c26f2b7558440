"""Whose a request is, by its head alone: an API key, a token, or a browser's session."""

from http import HTTPStatus

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from forge_functions.auth import authentication
from forge_functions.errors import Refused
from forge_functions.services import Services


async def owner_of(request: Request) -> str | None:
    """Return the owner on whose behalf a request is sent; None for a stranger.

    Nothing is permitted by this: it says whom a request is counted for.

    Raises:
        Refused: 429 after too many wrong secrets, 503 if a token's issuer does not answer.
    """
    if "authorization" in request.headers:
        try:
            return (await authentication.holder(request))[0].owner
        except Refused as error:
            if error.status not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise
    if "cookie" in request.headers:
        shared: Services = request.app.state.services
        visitor = await run_in_threadpool(shared.visitor_of, request, shared)
        return visitor.owner if visitor else None
    return None
