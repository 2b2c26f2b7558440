"""The function for users: jobs, templates, bundles, reports, the overview, tokens, health."""

from forge_functions.handlers.gateway import Gateway
from forge_functions.routes import (
    acts,
    bundles,
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

handler = Gateway(
    health.router,
    token.router,
    submission.router,
    jobs.router,
    job.router,
    acts.router,
    explain.router,
    templates.router,
    bundles.router,
    reports.router,
    overview.router,
    sweeps.router,
)
