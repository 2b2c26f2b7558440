"""The dashboard as part of an app: its routes, headers and error pages."""

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from forge_schema.model.errors import ForgeError
from starlette.exceptions import HTTPException

from forge_functions.dashboard import assets, words
from forge_functions.dashboard.refusals import readable
from forge_functions.dashboard.routes import (
    cancel_retry,
    events,
    job,
    job_streams,
    jobs,
    new_worker,
    notifications,
    overview,
    preferences,
    queues,
    reports,
    schedules,
    submit,
    workers,
)
from forge_functions.dashboard.routes.access import login, sign_on, terminal
from forge_functions.dashboard.routes.runs import compare, files, table
from forge_functions.dashboard.visit import session
from forge_functions.dashboard.visit.page_headers import PageHeaders
from forge_functions.lazy_routes import include

# One router per file; more specific paths come first.
ROUTERS = (
    assets.router,
    login.router,
    sign_on.router,
    terminal.router,
    preferences.router,
    overview.router,
    jobs.router,
    compare.router,
    table.router,
    cancel_retry.router,
    job_streams.router,
    files.router,
    job.router,
    submit.router,
    queues.router,
    schedules.router,
    notifications.router,
    new_worker.router,
    workers.router,
    reports.router,
    events.router,
)


def install(app: FastAPI) -> FastAPI:
    """Add the dashboard to an app and return the app."""
    for router in ROUTERS:
        include(app.router, router, include_in_schema=False, dependencies=[Depends(words.begun)])
    for kind in (ForgeError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, readable(app.exception_handlers[kind]))
    app.state.services.visitor_of = session.of
    app.add_middleware(PageHeaders)
    return app
