"""The app: a set of routers, the same under uvicorn and on Lambda, and whose a request is."""

from contextlib import suppress
from http import HTTPStatus

from fastapi import APIRouter, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from forge_schema.model.errors import ForgeError
from forge_schema.read.audit import Audit
from forge_schema.service.caller import Caller

from forge_functions import errors
from forge_functions.auth import authentication
from forge_functions.errors import Refused
from forge_functions.lazy_routes import include
from forge_functions.middleware.bulkheads import Bulkheads
from forge_functions.middleware.requests import RequestLog
from forge_functions.services import Services
from forge_functions.settings import VERSION

READING = ("GET", "HEAD", "OPTIONS")
REFUSALS = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


def create_app(services: Services, *routers: APIRouter) -> FastAPI:
    """Return an app that serves these routers and `/openapi.json`."""
    app = FastAPI(
        title="Forge",
        version=VERSION,
        summary="A pull queue for GPU training jobs.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=errors.problems(400, 413, 422, 429, 503),
    )
    app.state.services = services
    errors.install(app)
    for router in routers:
        include(app.router, router)
    app.add_middleware(
        Bulkheads, settings=services.settings, caller_of=caller_of, note_refusal=note_refusal
    )
    app.add_middleware(RequestLog, body_limit=services.settings.body_limit_bytes)
    return app


async def caller_of(request: Request) -> Caller | None:
    """Return on whose behalf a request is sent; None for a stranger.

    Nothing is permitted by this: it says whom a request is counted for.

    Raises:
        Refused: 429 after too many wrong secrets, 503 if a token's issuer does not answer.
    """
    if "authorization" in request.headers:
        try:
            return (await authentication.holder(request))[0]
        except Refused as error:
            if error.status not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise
    if "cookie" in request.headers:
        shared: Services = request.app.state.services
        return await run_in_threadpool(shared.visitor_of, request, shared)
    return None


async def note_refusal(request: Request, who: Caller, status: int) -> None:
    """Record that a caller was refused an act, within a limit, since the trail is kept."""
    if request.method not in READING and status in REFUSALS:
        await run_in_threadpool(_note, request, who, status)


def _note(request: Request, who: Caller, status: int) -> None:
    shared: Services = request.app.state.services
    detail = {"method": request.method, "path": request.url.path, "status": status}
    # The act was refused all the same.
    with suppress(ForgeError):
        shared.failures.check(f"refused:{who.actor}")
        shared.failures.count(f"refused:{who.actor}")
        Audit(shared.database).note(who.actor, "refused", detail)
