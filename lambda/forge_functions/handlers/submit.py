"""The function for users: jobs, configs, schedules, bundles, reports, the overview, tokens."""

from forge_functions.handlers.lambda_handler import LambdaHandler
from forge_functions.routes import (
    bundles,
    cancel_retry_preempt,
    explain,
    health,
    job,
    jobs,
    overview,
    reports,
    submission,
    sweeps,
    token,
)
from forge_functions.routes.plans import notifications, schedules, templates

handler = LambdaHandler(
    health.router,
    token.router,
    submission.router,
    jobs.router,
    job.router,
    cancel_retry_preempt.router,
    explain.router,
    templates.router,
    schedules.router,
    notifications.router,
    bundles.router,
    reports.router,
    overview.router,
    sweeps.router,
)
