"""Settlement: stores what an ended job left, while its lease holds, and says how it ended."""

from contextlib import suppress
from dataclasses import replace

import structlog
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.lease import End, Usage
from forge_schema.model.states import Phase, Reason
from forge_schema.storage.errors import StoreError

from forge_worker.attempt.attempt import Stop
from forge_worker.job_runs.last_words import last_words
from forge_worker.job_runs.parts import Parts
from forge_worker.job_runs.supervision import succeeded
from forge_worker.runners.runner import Exit

log = structlog.get_logger(__name__)


def settle(parts: Parts, exited: Exit) -> End | None:
    """Store what is left, and return how the job ended; None when its lease was lost."""
    parts.phases.enter(Phase.FINISHING)
    if succeeded(parts, exited):
        _store_success(parts)
    else:
        _store_in_time(parts)
    if parts.attempt.lost:
        return None
    if parts.stopped_for is not None or _faulted(parts, exited):
        return end_as_asked(parts, parts.stopped_for or parts.attempt.stop, exited.code)
    return _end_by_itself(parts, exited)


def end_as_asked(parts: Parts, stop: Stop | None, code: int | None = None) -> End | None:
    """Return the end of a job that was asked to stop."""
    if stop is None or stop.lost:
        return None
    return _end(parts, stop.reason, code, stop.detail or None)


def end_failed(parts: Parts, reason: Reason, detail: str, code: int | None = None) -> End | None:
    """End an attempt that came to nothing, and say why in its log if that can be stored."""
    if parts.attempt.lost:
        return None
    with suppress(Exception):
        parts.attempt.note(detail)
        parts.logs.end()
        parts.logs.step()
    return _end(parts, reason, code, detail)


def _faulted(parts: Parts, exited: Exit) -> bool:
    """Tell whether a job failed because its GPU broke: the driver may say so a little later."""
    if exited.code == 0 or not parts.slot.gpu_uuids:
        return False
    parts.services.fault_watch.settle()
    stop = parts.attempt.stop
    return stop is not None and stop.reason is Reason.GPU_FAULT


def _store_success(parts: Parts) -> None:
    """Store what a job has come to; its last checkpoint is of use to others at most."""

    def store() -> None:
        _store_small(parts)
        parts.artifacts.store()
        parts.logs.step()

    parts.patiently(store)
    parts.checkpoints.finish()
    parts.patiently(parts.logs.step)


def _store_in_time(parts: Parts) -> None:
    """Store what is left; a preempted job is given back without it, if it must be."""
    stop = parts.stopped_for

    def store() -> None:
        # Each part that is stored already is skipped. What is small goes first: time may be up
        # before a checkpoint is stored.
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


def _store_small(parts: Parts) -> None:
    parts.attempt.while_held()
    # What has nothing more to store does not wait for the queue: its end goes to the spool.
    with suppress(DatabaseUnreachable):
        parts.phases.step()
    parts.findings.store()
    parts.metrics.finish()
    parts.logs.step()


def _end_by_itself(parts: Parts, exited: Exit) -> End:
    if exited.oom_killed:
        end = _end(parts, Reason.OOM, exited.code)
        return replace(end, detail=_too_little(parts.slot.memory_mb, end.usage))
    if exited.code is None:
        return _end(parts, Reason.WORKER_LOST, detail=exited.detail or "the exit code is gone")
    if exited.code == 0:
        return _end(parts, Reason.SUCCEEDED, 0, "; ".join(parts.artifacts.refused) or None)
    folders = parts.attempt.folders
    said = last_words(exited, folders.log, parts.attempt.redactor, below=folders.work)
    return _end(parts, Reason.EXIT_CODE, exited.code, said)


def _end(parts: Parts, reason: Reason, code: int | None = None, detail: str | None = None) -> End:
    usage = parts.services.sampler.last(parts.usage)
    said = None if detail is None else parts.attempt.redactor.text(detail)
    return End(parts.attempt.fence, reason, code, said, usage)


def _too_little(limit_mb: int, used: Usage) -> str:
    """Say that a job ran out of memory, and what to type; all in MiB."""
    peak_mb = used.peak_memory_mb
    peak = f" (highest measured use: {peak_mb} MiB)" if peak_mb else ""
    more = 2 * max(limit_mb, peak_mb or 0)
    return f"needed more than its {limit_mb} MiB of memory{peak}: try --memory {more}MiB"
