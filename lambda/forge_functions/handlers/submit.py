"""The function for users: jobs, templates, bundles, reports, tokens, health."""

from forge_functions.handlers.gateway import Gateway
from forge_functions.routes import (
    acts,
    bundles,
    health,
    job,
    jobs,
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
    templates.router,
    bundles.router,
    reports.router,
    sweeps.router,
)
