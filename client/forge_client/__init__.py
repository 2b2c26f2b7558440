"""The `forge` command and the Python SDK."""

from forge_schema.model.job import JobStatus
from forge_schema.model.stored import Artifact
from forge_schema.model.worker import WorkerInfo

from forge_client.client import Client
from forge_client.errors import ClientError
from forge_client.futures import Waited, as_completed, wait
from forge_client.job import Job, JobCancelled, JobFailed

__all__ = [
    "Artifact",
    "Client",
    "ClientError",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobStatus",
    "Waited",
    "WorkerInfo",
    "as_completed",
    "wait",
]
