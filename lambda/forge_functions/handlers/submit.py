"""The function for users: jobs, configs, schedules, bundles, reports, the overview, tokens."""

from forge_functions.handlers.lambda_handler import LambdaHandler
from forge_functions.routes import bundles, health, token, verbs

handler = LambdaHandler(health.router, token.router, verbs.users, bundles.router)
