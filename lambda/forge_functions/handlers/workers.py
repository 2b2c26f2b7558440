"""The function for workers."""

from forge_functions.handlers.gateway import answering
from forge_functions.routes import worker_records, workers

handler = answering(workers.router, worker_records.router)
