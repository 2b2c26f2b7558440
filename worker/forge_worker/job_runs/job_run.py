"""One attempt from its grant to its end: prepare, run, supervise, finish."""

from contextlib import suppress
from dataclasses import replace

import structlog
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Usage
from forge_schema.model.quantities import MIB, size_text
from forge_schema.model.states import Phase, Reason
from forge_schema.queue.inputs import CheckpointUnknown
from forge_schema.storage.manifest import CheckpointUnsound
from forge_schema.storage.store import StoreError

from forge_worker.attempt import LiveAttempt, Stop, Stopped, with_advice
from forge_worker.attempt_folders import DiskFull
from forge_worker.files.placing import PlaceTaken
from forge_worker.files.rest import in_memory
from forge_worker.gang.preflight import PreflightFailed
from forge_worker.job_runs.last_words import lacks, last_words
from forge_worker.job_runs.parts import Parts
from forge_worker.job_runs.preparation import started, taken_up
from forge_worker.job_runs.services import JobServices
from forge_worker.job_runs.supervision import succeeded, supervise
from forge_worker.machine.gate import GateClosed
from forge_worker.machine.slots import MachineSlot
from forge_worker.prepare.bundle import BundleCorrupt, BundleRefused
from forge_worker.prepare.inputs.source import InputUnusable
from forge_worker.prepare.pip_program import PipMissing
from forge_worker.prepare.provisions import HandlerMissing, ProvisionFailed
from forge_worker.prepare.python_env import InstallRefused
from forge_worker.prepare.secrets import SecretUnusable
from forge_worker.runners.docker.mounts import MountRefused
from forge_worker.runners.runner import Exit, Handle, ImageMissing, PullFailed, Runner, StartFailed

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


def finish(parts: Parts, exited: Exit) -> End | None:
    """Store the remaining output and return how the job ended; None if its lease was lost."""
    good = succeeded(parts, exited)
    if not good:
        _stop_the_others(parts)
    parts.phases.enter(Phase.FINISHING)
    detail = None if good or parts.attempt.lost else _last_words(parts, exited)
    if good:
        _store_success(parts)
    else:
        _store_in_time(parts)
    if parts.attempt.lost:
        return None
    if parts.stopped_for is not None or _faulted(parts, exited):
        return end_as_asked(parts, parts.stopped_for or parts.attempt.stop, exited.code)
    return _end_by_itself(parts, exited, detail)


def end_as_asked(parts: Parts, stop: Stop | None, code: int | None = None) -> End | None:
    """Return the end of a job that was told to stop."""
    if stop is None or stop.lost:
        return None
    return _end(parts, stop.reason, code, stop.detail or None)


def end_failed(parts: Parts, reason: Reason, detail: str, code: int | None = None) -> End | None:
    """Return the end of a failed attempt; note the reason in its log if that can be stored."""
    if parts.attempt.lost:
        return None
    with suppress(Exception):
        parts.attempt.note(detail)
        parts.last_metrics.give_up("the attempt failed")
        parts.logs.end()
        parts.logs.step()
    return _end(parts, reason, code, detail)


def _stop_the_others(parts: Parts) -> None:
    """Have the other members of a run stop, before this one stores what may take minutes.

    They fail soon without it, and whoever fails first unasked decides how the run ended.
    """
    if parts.attempt.grant.nodes > 1 and parts.stopped_for is None:
        parts.phases.enter(Phase.STOPPING)
        with suppress(DatabaseUnreachable):
            parts.phases.step()


def _faulted(parts: Parts, exited: Exit) -> bool:
    """Tell whether a job failed because of its GPU."""
    stop = parts.attempt.stop
    return exited.code != 0 and stop is not None and stop.reason is Reason.GPU_FAULT


def _store_success(parts: Parts) -> None:
    """Store a successful job's output. Its last checkpoint can only help other jobs."""

    def store() -> None:
        _store_small(parts)
        parts.artifacts.store()
        parts.logs.step()

    parts.patiently(store)
    parts.artifacts.tell_unkept()
    parts.checkpoints.finish()
    parts.last_metrics.settle()
    parts.patiently(parts.logs.step)


def _store_in_time(parts: Parts) -> None:
    """Store the remaining output; a preempted job is given back without it if time runs out."""
    stop = parts.stopped_for

    def store() -> None:
        # Parts that are already stored are skipped. Small ones go first: time may run out before a
        # checkpoint is stored.
        _store_small(parts)
        parts.checkpoints.step()
        if stop is None or stop.reason is Reason.TIMEOUT:
            parts.artifacts.store()
        parts.logs.step()

    try:
        parts.patiently(store)
    except (StoreError, OSError) as error:
        if stop is None or stop.reason is not Reason.PREEMPTED:
            raise
        log.warning("output_incomplete", job=parts.attempt.fence.job_id, error=str(error))
    parts.artifacts.tell_unkept()
    parts.last_metrics.settle()
    with suppress(ForgeError, OSError):
        parts.logs.step()


def _store_small(parts: Parts) -> None:
    parts.attempt.while_held()
    parts.findings.store()
    # What is left of many lines comes last.
    with suppress(ForgeError):
        parts.metrics.finish()
    parts.logs.step()
    # Reported meanwhile, by the phases' own loop. A job with nothing left to store does not wait
    # for the queue: its end goes to the spool.
    with suppress(DatabaseUnreachable):
        parts.phases.step()


def _last_words(parts: Parts, exited: Exit) -> str:
    """Return why a job failed, in its own words; what it lacks is noted in its log too."""
    folders = parts.attempt.folders
    words = last_words(exited, folders.log, parts.attempt.redactor, below=folders.work)
    first, _, rest = words.partition("\n")
    lacking = lacks(first, parts.attempt.grant.spec, folders.work)
    if lacking is None:
        return words
    parts.attempt.note(lacking)
    return "\n".join(filter(None, (f"{first}; {lacking}", rest)))


def _end_by_itself(parts: Parts, exited: Exit, detail: str | None = None) -> End:
    if exited.oom_killed:
        end = _end(parts, Reason.OOM, exited.code)
        detail = _too_little(parts.slot.memory_mb, end.usage) + _files_in_memory(parts)
        return replace(end, detail=detail)
    if exited.code is None:
        return _end(parts, Reason.WORKER_LOST, detail=exited.detail or "the exit code is gone")
    if exited.code == 0:
        lost = "; ".join(filter(None, (exited.detail, *parts.artifacts.refused)))
        return _end(parts, Reason.SUCCEEDED, 0, lost or None)
    return _end(parts, Reason.EXIT_CODE, exited.code, detail)


def _end(parts: Parts, reason: Reason, code: int | None = None, detail: str | None = None) -> End:
    usage = parts.services.sampler.last(parts.usage)
    redacted = None if detail is None else parts.attempt.redactor.text(detail)
    return End(parts.attempt.fence, reason, code, redacted, usage)


def _too_little(limit_mb: int, used: Usage) -> str:
    """Say that a job ran out of memory, and which option to use; sizes in MiB."""
    peak_mb = used.peak_memory_mb
    peak = f" (highest measured use: {size_text(peak_mb * MIB)})" if peak_mb else ""
    more = 2 * max(limit_mb, peak_mb or 0)
    return (
        f"needed more than its {size_text(limit_mb * MIB)} of memory{peak}: try --memory {more}MiB"
    )


def _files_in_memory(parts: Parts) -> str:
    """Say how large the job's files are if they count as its memory; otherwise nothing."""
    folders = parts.attempt.folders
    try:
        used = folders.bytes_used() if in_memory(folders.root.stat().st_dev) else 0
    except OSError:
        return ""
    if not used:
        return ""
    return f"; its files, {size_text(used)}, count as memory: the worker's folder is in memory"


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
            services.health.failed(attempt.fence.job_id, detail)
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
