"""The function for workers."""

from forge_functions.handlers.lambda_handler import LambdaHandler
from forge_functions.routes.workers import join
from forge_functions.routes.workers import protocol as workers
from forge_functions.routes.workers import records as worker_records

handler = LambdaHandler(workers.router, worker_records.router, join.router)
