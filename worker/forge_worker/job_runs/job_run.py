"""One attempt from its grant to its end: prepare, run, supervise, finish."""

from dataclasses import replace

import structlog
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End
from forge_schema.model.states import Reason
from forge_schema.queue.inputs import CheckpointUnknown
from forge_schema.storage.manifest import CheckpointUnsound
from forge_schema.storage.store import StoreError

from forge_worker.attempt.attempt import LiveAttempt, Stopped, with_advice
from forge_worker.files.copies import DiskFull
from forge_worker.files.placing import PlaceTaken
from forge_worker.gang.preflight import PreflightFailed
from forge_worker.job_runs.finishing import end_as_asked, end_failed, finish
from forge_worker.job_runs.parts import Parts
from forge_worker.job_runs.preparation import started, taken_up
from forge_worker.job_runs.services import JobServices
from forge_worker.job_runs.supervision import supervise
from forge_worker.machine.gate import GateClosed
from forge_worker.machine.slots import MachineSlot
from forge_worker.prepare.bundle import BundleCorrupt, BundleRefused
from forge_worker.prepare.handlers import HandlerMissing
from forge_worker.prepare.inputs.source import InputUnusable
from forge_worker.prepare.pip_program import PipMissing
from forge_worker.prepare.provisions import ProvisionFailed
from forge_worker.prepare.python_env import InstallRefused
from forge_worker.prepare.secrets import SecretUnusable
from forge_worker.runners.docker.mounts import MountRefused
from forge_worker.runners.runner import Handle, ImageMissing, PullFailed, Runner, StartFailed

# The end reason for each error that an attempt can meet.
REASONS: dict[type[Exception], Reason] = {
    BundleCorrupt: Reason.BUNDLE_CORRUPT,
    BundleRefused: Reason.BUNDLE_CORRUPT,
    ImageMissing: Reason.IMAGE_MISSING,
    StartFailed: Reason.START_FAILED,
    ProvisionFailed: Reason.EXIT_CODE,
    PlaceTaken: Reason.EXIT_CODE,
    DiskFull: Reason.DISK_FULL,
    CheckpointUnsound: Reason.STORAGE_FAILED,
    StoreError: Reason.STORAGE_FAILED,
    OSError: Reason.STORAGE_FAILED,
    DatabaseUnreachable: Reason.WORKER_LOST,
    PreflightFailed: Reason.PREFLIGHT_FAILED,
    # The machine is at fault: the job goes back as if the worker drained.
    GateClosed: Reason.DRAINED,
}

# What a person has to change here, on this worker or in the job. Everything else may pass.
LASTING = (
    SecretUnusable,
    InputUnusable,
    HandlerMissing,
    InstallRefused,
    PipMissing,
    MountRefused,
    CheckpointUnknown,
)

log = structlog.get_logger(__name__)


def run(
    attempt: LiveAttempt,
    slot: MachineSlot,
    runner: Runner,
    services: JobServices,
    adopted: Handle | None = None,
) -> End | None:
    """Run an attempt to its end; every error becomes an end with a reason.

    If an earlier agent started the job, continue from there.

    Returns:
        How it ended, or None if its lease was lost.
    """
    parts = Parts(attempt, slot, runner, services)
    parts.phases.share()
    try:
        return _steps(parts, adopted)
    except Stopped:
        return end_as_asked(parts, attempt.stop)
    except (ForgeError, OSError) as error:
        detail = attempt.redactor.text(with_advice(error))
        log.warning("attempt_failed", job=attempt.fence.job_id, error=detail)
        if isinstance(error, StartFailed) and not isinstance(error, PullFailed):
            services.health.failed(detail)
        reason = next((r for kind, r in REASONS.items() if isinstance(error, kind)), None)
        end = end_failed(parts, reason or Reason.START_FAILED, detail, _code(error))
        return end and replace(end, lasting=isinstance(error, LASTING))
    except Exception as error:
        log.exception("attempt_failed", job=attempt.fence.job_id)
        return end_failed(parts, Reason.START_FAILED, f"the worker failed: {error!r}")
    finally:
        parts.close()


def _steps(parts: Parts, adopted: Handle | None) -> End | None:
    handle = started(parts) if adopted is None else taken_up(parts, adopted)
    parts.usage.handle = handle
    try:
        exited = supervise(parts, handle)
    except BaseException:
        handle.remove()
        raise
    return finish(parts, exited)


def _code(error: Exception) -> int | None:
    return error.exit_code if isinstance(error, ProvisionFailed) else None
