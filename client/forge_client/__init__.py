"""The `forge` command and the Python SDK."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forge_schema.model.job import JobStatus
    from forge_schema.model.stored import Artifact
    from forge_schema.model.worker import WorkerInfo

    from forge_client.errors import (
        ClientError,
        Conflict,
        InvalidInput,
        Misconfigured,
        NotAllowed,
        NotFound,
        Unreachable,
    )
    from forge_client.project.environment.active import installed
    from forge_client.project.submit import DryRun
    from forge_client.sdk.aio import AsyncClient, AsyncJob, AsyncSweep
    from forge_client.sdk.client import Client
    from forge_client.sdk.function_jobs import FunctionJob
    from forge_client.sdk.functions import Executor, JobFunction, job
    from forge_client.sdk.job import Job, JobCancelled, JobFailed
    from forge_client.sdk.sending import dry_run
    from forge_client.sdk.spec import JobSpec, JobWithCommand
    from forge_client.sdk.sweeps import FoundJob, Sweep, Waited, as_completed, wait

__all__ = [
    "Artifact",
    "AsyncClient",
    "AsyncJob",
    "AsyncSweep",
    "Client",
    "ClientError",
    "Conflict",
    "DryRun",
    "Executor",
    "FoundJob",
    "FunctionJob",
    "InvalidInput",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobFunction",
    "JobSpec",
    "JobStatus",
    "JobWithCommand",
    "Misconfigured",
    "NotAllowed",
    "NotFound",
    "Sweep",
    "Unreachable",
    "Waited",
    "WorkerInfo",
    "as_completed",
    "dry_run",
    "installed",
    "job",
    "wait",
]
PLACES = {
    "forge_client.sdk.client": ("Client",),
    "forge_client.errors": (
        *("ClientError", "Conflict", "InvalidInput", "Misconfigured"),
        *("NotAllowed", "NotFound", "Unreachable"),
    ),
    "forge_client.sdk.aio": ("AsyncClient", "AsyncJob", "AsyncSweep"),
    "forge_client.sdk.function_jobs": ("FunctionJob",),
    "forge_client.sdk.functions": ("Executor", "JobFunction", "job"),
    "forge_client.sdk.job": ("Job", "JobCancelled", "JobFailed"),
    "forge_client.project.environment.active": ("installed",),
    "forge_client.project.submit": ("DryRun",),
    "forge_client.sdk.sending": ("dry_run",),
    "forge_client.sdk.spec": ("JobSpec", "JobWithCommand"),
    "forge_client.sdk.sweeps": ("FoundJob", "Sweep", "Waited", "as_completed", "wait"),
    "forge_schema.model.job": ("JobStatus",),
    "forge_schema.model.stored": ("Artifact",),
    "forge_schema.model.worker": ("WorkerInfo",),
}


def __dir__() -> list[str]:
    return [*__all__]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any exported name
    # Commands that need none of these start faster without them.
    for module, names in PLACES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
