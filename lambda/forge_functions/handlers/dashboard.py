"""The function for the dashboard's pages. They poll, since Lambda cannot stream."""

from forge_functions.dashboard.site import install
from forge_functions.handlers.lambda_handler import LambdaHandler

handler = LambdaHandler(finish=install)
