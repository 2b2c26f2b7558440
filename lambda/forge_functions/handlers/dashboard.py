"""The function for the dashboard's pages. They poll, since Lambda cannot stream."""

import forge_functions.dashboard.routes  # noqa: F401 - before the first request, not within it
from forge_functions.dashboard.site import install
from forge_functions.handlers.lambda_handler import LambdaHandler

handler = LambdaHandler(finish=install)
