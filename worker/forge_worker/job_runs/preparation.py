"""Preparation: starts a granted job or continues one, and prepares for the next meanwhile.

The next job is not claimed, only looked at: it may go to another worker. What was prepared stays in
the caches of bundles, images and environments, where the job finds it wherever it starts here.
"""

import shutil
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import get_ident
from time import monotonic

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import Grant
from forge_schema.model.quantities import size_text
from forge_schema.model.states import Launcher, Phase
from forge_schema.storage import Objects

from forge_worker.attempt import LiveAttempt, Stopped
from forge_worker.attempt_folders import DiskFull, Folders
from forge_worker.files.safe_files import remove_tree
from forge_worker.gang.launchers import launched
from forge_worker.job_runs.job_environment import container_name, run_spec
from forge_worker.job_runs.job_state import kept_stop, record_of
from forge_worker.job_runs.parts import Parts
from forge_worker.job_runs.services import JobServices
from forge_worker.loop import Loop
from forge_worker.machine.slots import MachineSlot
from forge_worker.prepare.bundle import BundleCache, archive
from forge_worker.prepare.inputs import fetched_places
from forge_worker.prepare.python_env import ENV, EnvironmentProvision
from forge_worker.runners.choice import Runners
from forge_worker.runners.runner import Handle, RunSpec
from forge_worker.transfers import TRANSFERS

CHECK_S = 2.0
REMEMBERED = 64
# What an installation may use, beside the jobs to which the machine is lent.
CPUS, MEMORY_MB = 1.0, 2048
MIB = 1 << 20

log = structlog.get_logger(__name__)


def started(parts: Parts) -> Handle:
    """Prepare a job and start it.

    Raises:
        Stopped: it was stopped before its start.
        ForgeError, OSError: it cannot be started.
    """
    parts.attempt.while_wanted()
    spec = _prepare(parts)
    grant = parts.attempt.grant
    launcher = grant.spec.get("launcher") or Launcher.NONE
    if grant.nodes > 1:
        spec = launched(parts.gatherer.gather(), spec, parts.runner, launcher)
    elif launcher != Launcher.NONE:
        spec = launched(parts.gatherer.alone(), spec, parts.runner, launcher)
    parts.attempt.while_wanted()
    handle = parts.runner.start(spec)
    parts.services.health.started()
    note_warm(parts.attempt.grant, spec, parts.services)
    return handle


def taken_up(parts: Parts, adopted: Handle) -> Handle:
    """Continue a job that an earlier agent started."""
    for loop in (parts.logs, parts.checkpoints):
        # Their last steps may have been long ago.
        loop.wake()
    parts.logs.share()
    parts.disk.share()
    parts.stopped_for = kept_stop(parts.attempt.folders.root)
    if parts.stopped_for is not None:
        parts.attempt.request_stop(parts.stopped_for)
    # If this fails, stored objects are uploaded once more, which is harmless.
    with suppress(ForgeError):
        parts.checkpoints.recall()
    return adopted


def _prepare(parts: Parts) -> RunSpec:
    attempt, runner, services = parts.attempt, parts.runner, parts.services
    parts.phases.enter(Phase.PREPARING)
    attempt.folders.make()
    record_of(attempt, parts.slot, runner.kind, container_name(attempt)).write()
    parts.logs.share()
    parts.disk.share()
    if services.gate.needed:
        services.gate.enter(parts.gated(), attempt.note, attempt.while_wanted)
    parts.patiently(partial(unpack, attempt, parts.objects, services))
    spec = run_spec(attempt, parts.slot, runner, services.host)
    for provision in services.provisions:
        spec = parts.patiently(partial(provision.provide, spec, attempt, runner))
    parts.patiently(parts.checkpoints.restore)
    parts.artifacts.look()
    return spec


def unpack(attempt: LiveAttempt, objects: Objects, services: JobServices) -> None:
    """Unpack the job's bundle into its folder."""
    if digest := attempt.grant.bundle_digest:
        attempt.while_wanted()
        cache = BundleCache(objects, services.bundles, services.bundles_bytes)
        cache.unpack(digest, attempt.folders.work, progress=attempt.while_wanted)


def note_warm(grant: Grant, spec: RunSpec, services: JobServices) -> None:
    """Have the queue prefer this machine for jobs that need what this one needed."""
    digest = grant.bundle_digest
    places = (
        None,
        next((mount.source for mount in spec.mounts if mount.target == ENV), None),
        archive(services.bundles, digest) if digest else None,
    )
    inputs = fetched_places(grant.spec.get("inputs", {}), spec.mounts)
    own = zip(grant.parts, places, strict=False)
    # Of an image there is no place; what was not fetched has none either.
    of_inputs = zip(grant.parts[len(places) :], inputs, strict=False)
    fetched = [(part, at) for part, at in of_inputs if at is not None]
    # It is a hint, and the job may be running.
    with suppress(OSError):
        services.warm.note({part: at for part, at in (*own, *fetched) if part is not None})
        services.gateway.prefer(services.warm.newest())


class Prefetch(Loop):
    """Looks at the next job every `period_s` seconds, and prepares for it once."""

    name = "prefetch"
    shares = True

    def __init__(
        self,
        folder: Path,
        runners: Runners,
        services: Callable[[], JobServices],
        *,
        attempts: Callable[[], list[LiveAttempt]],
        closed: Callable[[], bool],
        period_s: float,
    ) -> None:
        super().__init__(period_s)
        self._folder = folder
        self._runners = runners
        self._services = services
        self._attempts = attempts
        self._closed = closed
        self._done: deque[int] = deque(maxlen=REMEMBERED)
        # They must not keep the jobs behind them from being prepared.
        self._failed: deque[int] = deque(maxlen=REMEMBERED)
        # Of an agent that was killed.
        remove_tree(folder)

    def step(self) -> None:
        attempts = self._attempts()
        if not attempts or any(attempt.phase is not Phase.RUNNING for attempt in attempts):
            return
        grant = self._services().gateway.next_job(self._failed)
        if grant is None or grant.job_id in self._done or self._is_ready(grant):
            return
        try:
            self._prepare(grant)
        except Stopped:
            log.info("prefetch_stopped", job=grant.job_id)
            return
        except (ForgeError, OSError) as error:
            # Once the job has started, its own log says so.
            log.info("prefetch_failed", job=grant.job_id, error=str(error))
            self._failed.append(grant.job_id)
        else:
            log.info("prefetched", job=grant.job_id)
            self._done.append(grant.job_id)

    def _is_ready(self, grant: Grant) -> bool:
        # Inputs are fetched with a lease.
        image, env, bundle = grant.parts[:3]
        needed = {image, None if grant.spec.get("secrets") else env, bundle}
        return needed <= {None, *self._services().warm.newest()}

    def _prepare(self, grant: Grant) -> None:
        services, thread = self._services(), get_ident()
        disk_mb = int(grant.spec["resources"]["disk_mb"])
        attempt = Ahead(grant, Folders(self._folder / str(grant.job_id)))
        attempt.wanted = lambda: self._undisturbing(grant, thread)
        try:
            attempt.folders.make()
            attempt.while_wanted()
            unpack(attempt, services.objects(attempt), services)
            runner = self._runners.of(grant.spec)
            slot = MachineSlot(CPUS, min(MEMORY_MB, grant.spec["resources"]["memory_mb"]), disk_mb)
            spec = run_spec(attempt, slot, runner, services.host)
            for provision in services.provisions:
                spec = provision.provide(spec, attempt, runner)
                # After the image: no secret is read for a job that has no lease.
                if grant.spec.get("secrets") or isinstance(provision, EnvironmentProvision):
                    break
            note_warm(grant, spec, services)
        finally:
            attempt.folders.remove()

    def _undisturbing(self, grant: Grant, thread: int) -> bool:
        """Tell whether no other job needs the network, and the disk has room for all."""
        if self._closed() or TRANSFERS.busy_for_others(thread):
            return False
        others = [attempt for attempt in self._attempts() if attempt.grant.job_id != grant.job_id]
        if any(other.phase is Phase.PREPARING for other in others):
            return False
        # What is lent may still be filled.
        grants = (grant, *(other.grant for other in others))
        lent_mb = sum(each.spec["resources"]["disk_mb"] for each in grants)
        return bool(shutil.disk_usage(self._folder.parent).free >= lent_mb * MIB)


class Ahead(LiveAttempt):
    """A job that waits in the queue, as far as its preparation is concerned."""

    wanted: Callable[[], bool] = staticmethod(lambda: True)
    _checked: float = float("-inf")

    def while_wanted(self, _moved: int = 0) -> None:
        if monotonic() - self._checked > CHECK_S:
            if not self.wanted():
                self.stopping.set()
            if self.bytes_used() > (disk_mb := self.grant.spec["resources"]["disk_mb"]) * MIB:
                raise DiskFull(f"it needs more than the job's {size_text(disk_mb * MIB)} of disk")
            self._checked = monotonic()
        super().while_wanted()
