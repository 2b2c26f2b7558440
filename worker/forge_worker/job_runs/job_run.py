"""One attempt from its grant to its end: prepare, run, watch, settle."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from signal import SIGKILL, Signals
from threading import Thread

import structlog
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Usage
from forge_schema.model.states import Phase, Reason
from forge_schema.storage.errors import StoreError
from forge_schema.storage.manifest import CheckpointUnsound

from forge_worker.attempt.attempt import Attempt, Stop, Stopped, with_advice
from forge_worker.attempt.patience import Patience
from forge_worker.attempt.window import opening
from forge_worker.clock import seconds
from forge_worker.files.copies import DiskFull
from forge_worker.files.safe_files import touch
from forge_worker.job_io.artifacts import ArtifactKeeper
from forge_worker.job_io.checkpoints import CheckpointRequest, CheckpointSync
from forge_worker.job_io.disk import DiskWatch
from forge_worker.job_io.logs import LogShipper
from forge_worker.job_io.metrics import MetricsTail
from forge_worker.job_io.results import Findings
from forge_worker.job_io.stall import stall_watches
from forge_worker.job_runs.job_environment import run_spec
from forge_worker.job_runs.job_state import keep_exit, keep_stop, kept_stop, record_of
from forge_worker.job_runs.last_words import last_words
from forge_worker.job_runs.phases import PhaseReporter
from forge_worker.job_runs.services import JobServices
from forge_worker.loop import Loop
from forge_worker.machine.slots import Slot
from forge_worker.prepare.bundle import BundleCache, BundleCorrupt, BundleRefused
from forge_worker.prepare.provisions import ProvisionFailed
from forge_worker.runners.runner import (
    Exit,
    Handle,
    ImageMissing,
    PullFailed,
    Runner,
    RunSpec,
    StartFailed,
)

WATCH_S = 0.5
# What an attempt can meet, and the reason that it ends with.
REASONS: dict[type[Exception], Reason] = {
    BundleCorrupt: Reason.BUNDLE_CORRUPT,
    BundleRefused: Reason.BUNDLE_CORRUPT,
    ImageMissing: Reason.IMAGE_MISSING,
    StartFailed: Reason.START_FAILED,
    ProvisionFailed: Reason.EXIT_CODE,
    DiskFull: Reason.DISK_FULL,
    CheckpointUnsound: Reason.STORAGE_FAILED,
    StoreError: Reason.STORAGE_FAILED,
    OSError: Reason.STORAGE_FAILED,
    DatabaseUnreachable: Reason.WORKER_LOST,
}

log = structlog.get_logger(__name__)


class JobRun:
    """Runs one attempt; `run` returns how it ended, or None when its lease was lost."""

    def __init__(self, attempt: Attempt, slot: Slot, runner: Runner, services: JobServices) -> None:
        self.attempt = attempt
        self._slot = slot
        self._runner = runner
        self._services = services
        objects, gateway = services.objects(attempt), services.gateway
        self._objects = objects
        self._phases = PhaseReporter(attempt, gateway, slot.gpu_uuids)
        self._logs = LogShipper(attempt, objects, gateway, period_s=services.log_flush_s)
        self._metrics = MetricsTail(attempt, gateway)
        self._checkpoints = CheckpointSync(attempt, objects, gateway, slot.disk_mb)
        self._checkpoint_call = CheckpointRequest(attempt, self._checkpoints)
        self._artifacts = ArtifactKeeper(attempt, objects, gateway, slot.disk_mb)
        self._disk = DiskWatch(attempt, slot.disk_mb)
        self._findings = Findings(attempt, gateway)
        self._watched = services.sampler.watch(attempt, slot.gpu_uuids)
        self._patiently = Patience(attempt, services.store_patience_s)
        # Why the job was stopped; None while it has not been, whatever is asked afterwards.
        self._stopped_for: Stop | None = None

    def run(self, adopted: Handle | None = None) -> End | None:
        """Run the attempt to its end; whatever happens is an end with a reason.

        With what an earlier agent started, it goes on from there.
        """
        self._phases.start()
        try:
            return self._attempt(adopted)
        except Stopped:
            return self._end_as_asked(self.attempt.stop)
        except (ForgeError, OSError) as error:
            said = self.attempt.redactor.text(with_advice(error))
            log.warning("attempt_failed", job=self.attempt.fence.job_id, error=said)
            if isinstance(error, StartFailed) and not isinstance(error, PullFailed):
                self._services.health.failed(said)
            reason = next((r for kind, r in REASONS.items() if isinstance(error, kind)), None)
            return self._failed(reason or Reason.START_FAILED, said, _code(error))
        except Exception as error:
            log.exception("attempt_failed", job=self.attempt.fence.job_id)
            return self._failed(Reason.START_FAILED, f"the worker failed: {error!r}")
        finally:
            self._services.sampler.let_go(self._watched)
            for loop in (self._logs, self._disk, self._phases):
                loop.end(self._left_s())

    def _failed(self, reason: Reason, detail: str, code: int | None = None) -> End | None:
        """End an attempt that came to nothing, and say why in its log if that can be stored."""
        if self.attempt.lost:
            return None
        with suppress(Exception):
            self.attempt.note(detail)
            self._logs.end()
            self._logs.step()
        return self._end(reason, code, detail)

    def _attempt(self, adopted: Handle | None) -> End | None:
        handle = self._started() if adopted is None else self._taken_up(adopted)
        self._watched.handle = handle
        try:
            exited = self._watch(handle)
            self._keep(partial(keep_exit, self.attempt.folders.root, exited))
        finally:
            handle.remove()
        return self._settle(exited)

    def _started(self) -> Handle:
        self.attempt.while_wanted()
        spec = self._prepare()
        self.attempt.while_wanted()
        handle = self._runner.start(spec)
        self._services.health.started()
        return handle

    def _taken_up(self, adopted: Handle) -> Handle:
        self._logs.start()
        self._disk.start()
        self._stopped_for = kept_stop(self.attempt.folders.root)
        if self._stopped_for is not None:
            self.attempt.request_stop(self._stopped_for)
        # Without it, what is stored already travels once more, and no harm is done.
        with suppress(ForgeError):
            self._checkpoints.recall()
        return adopted

    def _keep(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            # Only an agent that starts after this one was killed would have read it.
            log.warning("not_kept", job=self.attempt.fence.job_id, error=str(error))

    def _prepare(self) -> RunSpec:
        self._phases.enter(Phase.PREPARING)
        self.attempt.folders.make(self.attempt.fence)
        self._logs.start()
        self._disk.start()
        self._patiently(self._unpack)
        spec = run_spec(self.attempt, self._slot, self._runner, self._services.host)
        record_of(self.attempt, self._slot, self._runner.kind, spec.name).write()
        for provision in self._services.provisions:
            spec = self._patiently(partial(provision.provide, spec, self.attempt, self._runner))
        self._patiently(self._checkpoints.restore)
        return spec

    def _unpack(self) -> None:
        if digest := self.attempt.grant.bundle_digest:
            self.attempt.while_wanted()
            services = self._services
            cache = BundleCache(self._objects, services.bundles, services.bundles_bytes)
            cache.unpack(digest, self.attempt.folders.work, progress=self.attempt.while_wanted)

    def _watch(self, handle: Handle) -> Exit:
        self._phases.enter(Phase.RUNNING)
        stored = self._checkpoints
        loops: list[Loop] = [self._metrics, stored.thinner, self._checkpoint_call]
        loops += stall_watches(self.attempt, self._watched, len(self._slot.gpu_uuids))
        for loop in (stored, *loops):
            loop.start()
        succeeded = False
        try:
            exited = self._wait(handle)
            stored.job_ended = True
            succeeded = self._succeeded(exited)
            return exited
        finally:
            for loop in (self._logs, self._disk, *loops):
                loop.end(self._left_s())
            # One that is being stored after a success holds nothing up.
            stored.end(0.0 if succeeded else self._left_s())

    def _wait(self, handle: Handle) -> Exit:
        limit_s = self.attempt.grant.timeout_s
        started_s = self.attempt.started_s()
        while (exited := handle.wait(WATCH_S)) is None:
            if limit_s is not None and seconds() - started_s > limit_s:
                self.attempt.request_stop(Stop(Reason.TIMEOUT, f"over {limit_s} s"))
            if self.attempt.stopping.is_set():
                return self._stopped(handle)
        return exited

    def _stopped(self, handle: Handle) -> Exit:
        """Stop the job: in its time, or at once when its lease is another's."""
        self._stopped_for = stop = self.attempt.stop
        if stop is not None and not stop.lost:
            self._keep(partial(keep_stop, self.attempt.folders.root, stop))
            touch(self.attempt.folders.control, self.attempt.folders.preempt.name)
            self._ask_to_stop(handle, stop)
        while (exited := handle.wait(WATCH_S)) is None:
            if self.attempt.lost:
                handle.remove()
            elif seconds() >= self._kill_s():
                handle.signal(SIGKILL)
        return exited

    def _ask_to_stop(self, handle: Handle, stop: Stop) -> None:
        """Leave a preempted job all that its window allows, and any other one its grace."""
        if stop.reason is not Reason.PREEMPTED:
            Thread(target=handle.stop, name="stop", daemon=True).start()
            return
        if self.attempt.window is None:
            # Nothing but this job is to go: it is a rehearsal.
            window = opening(self._services.term_notice_s)
            self.attempt.request_stop(replace(stop, window=window))
        handle.signal(Signals[self.attempt.grant.spec.get("preempt_signal", "SIGTERM")])

    def _kill_s(self) -> float:
        window = self.attempt.window
        if window is None:
            return inf
        return window.kill_s(self._services.upload_reserve_s, self._checkpoints.took_s)

    def _left_s(self) -> float | None:
        """Return how long to wait for what may hang; None where there is no hurry."""
        window = self.attempt.window
        return None if window is None else max(0.0, window.give_back_s - seconds())

    def _settle(self, exited: Exit) -> End | None:
        """Store what is left, while the lease still holds, and say how it ended."""
        self._phases.enter(Phase.FINISHING)
        if self._succeeded(exited):
            self._store_success()
        else:
            self._store_in_time()
        if self.attempt.lost:
            return None
        if self._stopped_for is not None or self._faulted(exited):
            return self._end_as_asked(self._stopped_for or self.attempt.stop, exited.code)
        return self._end_by_itself(exited)

    def _succeeded(self, exited: Exit) -> bool:
        return exited.code == 0 and not exited.oom_killed and self._stopped_for is None

    def _faulted(self, exited: Exit) -> bool:
        """Tell whether a job failed because its GPU broke: the driver may say so a little later."""
        if exited.code == 0 or not self._slot.gpu_uuids:
            return False
        self._services.fault_watch.settle()
        stop = self.attempt.stop
        return stop is not None and stop.reason is Reason.GPU_FAULT

    def _store_success(self) -> None:
        """Store what a job has come to; its last checkpoint is of use to others at most."""
        self._patiently(self._store_results)
        self._checkpoints.finish()
        self._patiently(self._logs.step)

    def _store_results(self) -> None:
        self._store_small()
        self._artifacts.store()
        self._logs.step()

    def _store_in_time(self) -> None:
        """Store what is left; a preempted job is given back without it, if it must be."""
        try:
            self._patiently(self._store_last)
        except (StoreError, OSError) as error:
            if self._stopped_for is None or self._stopped_for.reason is not Reason.PREEMPTED:
                raise
            log.warning("output_incomplete", job=self.attempt.fence.job_id, error=str(error))

    def _store_last(self) -> None:
        """Store what came since the loops ended; each part that is stored already is skipped.

        What is small goes first: time may be up before a checkpoint is stored.
        """
        self._store_small()
        self._checkpoints.step()
        if self._stopped_for is None or self._stopped_for.reason is Reason.TIMEOUT:
            self._artifacts.store()
        self._logs.step()

    def _store_small(self) -> None:
        self.attempt.while_held()
        # What has nothing more to store does not wait for the queue: its end goes to the spool.
        with suppress(DatabaseUnreachable):
            self._phases.step()
        self._findings.store()
        self._metrics.finish()
        self._logs.step()

    def _end_by_itself(self, exited: Exit) -> End:
        if exited.oom_killed:
            end = self._end(Reason.OOM, exited.code)
            return replace(end, detail=_too_little(self._slot.memory_mb, end.usage))
        if exited.code is None:
            return self._end(Reason.WORKER_LOST, detail=exited.detail or "the exit code is gone")
        if exited.code == 0:
            return self._end(Reason.SUCCEEDED, 0, "; ".join(self._artifacts.refused) or None)
        folders = self.attempt.folders
        said = last_words(exited, folders.log, self.attempt.redactor, below=folders.work)
        return self._end(Reason.EXIT_CODE, exited.code, said)

    def _end_as_asked(self, stop: Stop | None, code: int | None = None) -> End | None:
        if stop is None or stop.lost:
            return None
        return self._end(stop.reason, code, stop.detail or None)

    def _end(self, reason: Reason, code: int | None = None, detail: str | None = None) -> End:
        usage = self._services.sampler.last(self._watched)
        said = None if detail is None else self.attempt.redactor.text(detail)
        return End(self.attempt.fence, reason, code, said, usage)


def _too_little(limit_mb: int, used: Usage) -> str:
    """Say that a job ran out of memory, and what to type; all in MiB."""
    peak_mb = used.peak_memory_mb
    peak = f" (highest measured use: {peak_mb} MiB)" if peak_mb else ""
    more = 2 * max(limit_mb, peak_mb or 0)
    return f"needed more than its {limit_mb} MiB of memory{peak}: try --memory {more}MiB"


def _code(error: Exception) -> int | None:
    return error.exit_code if isinstance(error, ProvisionFailed) else None
