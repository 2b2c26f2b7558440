"""The function for users: jobs, templates, bundles, reports, the overview, tokens, health."""

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
    templates,
    token,
)

handler = LambdaHandler(
    health.router,
    token.router,
    submission.router,
    jobs.router,
    job.router,
    cancel_retry_preempt.router,
    explain.router,
    templates.router,
    bundles.router,
    reports.router,
    overview.router,
    sweeps.router,
)
