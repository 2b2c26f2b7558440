"""The function for admins. It also serves the fleet to everybody."""

from forge_functions.handlers.lambda_handler import LambdaHandler
from forge_functions.routes import verbs
from forge_functions.routes.workers import join

handler = LambdaHandler(
    verbs.admins,
    # It refuses: these functions hold a part of the packages only.
    join.router,
    verbs.fleet,
)
