"""The function for workers."""

from forge_functions.handlers.gateway import Gateway
from forge_functions.routes import worker_records, workers

handler = Gateway(workers.router, worker_records.router)
