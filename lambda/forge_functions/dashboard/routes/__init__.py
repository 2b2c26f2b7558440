"""The routes of the pages, one file per page."""

from forge_functions.dashboard import assets
from forge_functions.dashboard.routes import (
    annotate,
    cancel_retry,
    events,
    job,
    job_streams,
    jobs,
    new_worker,
    overview,
    preferences,
    queues,
    reports,
    submit,
    workers,
)
from forge_functions.dashboard.routes.access import keys, login, sign_on, teams, terminal
from forge_functions.dashboard.routes.plans import inputs, notifications, schedules
from forge_functions.dashboard.routes.runs import compare, files, table

# One router per file; more specific paths come first.
ROUTERS = (
    assets.router,
    login.router,
    sign_on.router,
    terminal.router,
    keys.router,
    preferences.router,
    overview.router,
    jobs.router,
    compare.router,
    table.router,
    cancel_retry.router,
    job_streams.router,
    files.router,
    annotate.router,
    job.router,
    submit.router,
    queues.router,
    teams.router,
    schedules.router,
    notifications.router,
    inputs.router,
    new_worker.router,
    workers.router,
    reports.router,
    events.router,
)
