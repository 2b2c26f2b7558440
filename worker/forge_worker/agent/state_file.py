"""The state file: the agent's current status, which `--status` reads even without an agent."""

import json
import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from forge_worker.agent.claim_loop import Claims
from forge_worker.agent.leaving import Leaving
from forge_worker.attempt import LiveAttempt, LiveAttempts
from forge_worker.circuit_breaker import Refusals
from forge_worker.files.small_files import write_atomically
from forge_worker.loop import Loop
from forge_worker.machine.slots import MachineSlot
from forge_worker.machine.watched import WatchedMachine
from forge_worker.settings.settings import WorkerSettings
from forge_worker.worker_folder import HeldFolder

NAME = "state.json"
PERIOD_S = 1.0
VERSION = version("forge-queue")
# The settings that `--status` shows.
POLICY = (
    "profile", "cpus", "memory_mb", "memory_reserve_mb", "disk_mb", "disk_floor_mb", "gpus",
    "max_jobs", "max_storing", "max_cpu_percent", "max_memory_percent", "max_gpu_percent",
    "cooldown_s", "runner", "allow_processes", "default_image", "allowed_images", "allow_builds",
    "pull", "network", "allow_metadata", "extra_mounts", "offer_folders", "allow_install",
    "allow_exec", "labels", "spot",
)  # fmt: skip


class StateKeeper(Loop):
    """Writes the agent's status atomically whenever it has changed."""

    name = "state"
    shares = True

    def __init__(
        self,
        settings: WorkerSettings,
        machine: WatchedMachine,
        folder: HeldFolder,
        leaving: Leaving,
        runs: str,
        *,
        running: LiveAttempts,
        claims: Claims,
        refusals: Refusals,
    ) -> None:
        super().__init__(PERIOD_S)
        self._path = settings.worker_dir / NAME
        self._settings = settings
        self._machine = machine
        self._folder = folder
        self._leaving = leaving
        self._runs = runs
        self._running = running
        self._claims = claims
        self._refusals = refusals
        self._policy = policy(settings)
        self._written = ""

    def step(self) -> None:
        """Write the status if it has changed, or leave if the folder is gone.

        Raises:
            OSError: the file cannot be written.
        """
        if self._folder.gone():
            self._leaving.unhoused(self._folder.path)
            return
        text = json.dumps(self.document(), indent=1)
        if text == self._written:
            return
        write_atomically(self._path, text, durable=False)
        self._written = text

    def end(self, patience_s: float | None = None) -> None:
        """Write the status one last time."""
        super().end(patience_s)
        with suppress(OSError):
            self.step()

    def document(self) -> dict[str, Any]:
        """Return the agent's identity, the resources it offers, and each job with its share.

        Sizes are in MiB, times in seconds since 1970 by the machine's clock.
        """
        identity, lent = self._claims.identity, self._machine.slots.lent
        return {
            "worker": identity.name,
            "worker_id": identity.worker_id,
            "draining": self._claims.closed,
            "leaving": self._machine.condition.leaving,
            "pid": os.getpid(),
            "version": VERSION,
            "queue": queue_words(self._settings),
            "runs": [word for word in self._runs.split(",") if word],
            "lends": self._lends(),
            "jobs": [
                _job(attempt, lent.get(attempt.fence.token)) for attempt in self._running.attempts()
            ],
            "condition": self._machine.condition.reported(),
            "refused": self._refusals.why,
            "policy": self._policy,
        }

    def _lends(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "cpus": settings.cpus,
            "memory_mb": settings.memory_mb,
            "disk_mb": settings.disk_mb,
            "gpus": [gpu.reported() for gpu in self._machine.devices.gpus],
            "max_jobs": settings.max_jobs,
        }


def policy(settings: WorkerSettings) -> dict[str, Any]:
    """Return the settings that say what the worker lends and allows, for JSON."""
    return {name: getattr(settings, name) for name in POLICY}


def read(folder: Path) -> dict[str, Any]:
    """Return the last status that an agent of this folder wrote, or {} if it is unreadable."""
    with suppress(OSError, ValueError):
        state = json.loads((folder / NAME).read_text(encoding="utf-8"))
        if isinstance(state, dict):
            return state
    return {}


def queue_words(settings: WorkerSettings) -> list[str]:
    """Return the queue's address without credentials."""
    if settings.url:
        return list(settings.url)
    if not settings.database_url:
        return []
    parts = urlsplit(settings.database_url)
    return [f"{parts.hostname or 'local'}{parts.path}", settings.store_url]


def _job(attempt: LiveAttempt, slot: MachineSlot | None) -> dict[str, Any]:
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
