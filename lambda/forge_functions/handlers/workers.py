"""The function for workers."""

from forge_functions.handlers.gateway import Gateway
from forge_functions.routes.workers import protocol as workers
from forge_functions.routes.workers import records as worker_records

handler = Gateway(workers.router, worker_records.router)
