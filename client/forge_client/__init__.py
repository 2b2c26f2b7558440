"""The `forge` command and the Python SDK."""

from forge_client.answers.records import Artifact, JobStatus, WorkerInfo
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
