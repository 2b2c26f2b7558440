"""What an agent is and does at one moment, as its state file has it."""

import os
from collections.abc import Collection, Mapping
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from forge_worker.devices import Gpu
from forge_worker.job_runs.attempt import Attempt
from forge_worker.machine.slots import Slot
from forge_worker.settings.settings import WorkerSettings

VERSION = version("forge-queue")


def snapshot(
    settings: WorkerSettings,
    gpus: Collection[Gpu],
    runs: str,
    attempts: Collection[Attempt],
    lent: Mapping[int, Slot],
) -> dict[str, Any]:
    """Return who the agent is, what it lends, and each job with what it was lent.

    Sizes are in MiB, times in seconds since 1970 by the machine's clock.
    """
    return {
        "pid": os.getpid(),
        "version": VERSION,
        "queue": queue_words(settings),
        "runs": [word for word in runs.split(",") if word],
        "lends": {
            "cpus": settings.cpus,
            "memory_mb": settings.memory_mb,
            "disk_mb": settings.disk_mb,
            "gpus": [gpu.reported() for gpu in gpus],
            "max_jobs": settings.max_jobs,
        },
        "jobs": [_job(attempt, lent.get(attempt.fence.token)) for attempt in attempts],
    }


def queue_words(settings: WorkerSettings) -> list[str]:
    """Return where the queue is, without what lets one in."""
    if settings.url:
        return list(settings.url)
    if not settings.database_url:
        return []
    parts = urlsplit(settings.database_url)
    return [f"{parts.hostname or 'local'}{parts.path}", settings.store_url]


def _job(attempt: Attempt, slot: Slot | None) -> dict[str, Any]:
    stop = attempt.stop
    return {
        "job": attempt.fence.job_id,
        "attempt": attempt.grant.attempt,
        "token": attempt.fence.token,
        "name": attempt.grant.name,
        "owner": attempt.grant.owner,
        "phase": attempt.phase.value,
        "since": round(attempt.since),
        "cpus": slot.cpus if slot else 0,
        "memory_mb": slot.memory_mb if slot else 0,
        "disk_mb": slot.disk_mb if slot else 0,
        "gpus": list(slot.gpu_uuids) if slot else [],
        "stopping": stop.reason.value if stop else None,
    }
