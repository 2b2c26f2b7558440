"""The app: a set of routers, the same under uvicorn and on Lambda."""

from fastapi import APIRouter, FastAPI

from forge_functions import errors
from forge_functions.auth.door import caller_of, note_refusal
from forge_functions.middleware.bulkheads import Bulkheads
from forge_functions.middleware.requests import RequestLog
from forge_functions.services import Services
from forge_functions.settings import VERSION


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
        app.include_router(router)
    app.add_middleware(
        Bulkheads, settings=services.settings, caller_of=caller_of, note_refusal=note_refusal
    )
    app.add_middleware(RequestLog, body_limit=services.settings.body_limit_bytes)
    return app
