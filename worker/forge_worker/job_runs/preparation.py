"""Preparation: starts a granted job, or reattaches to one that an earlier agent started."""

from contextlib import suppress
from functools import partial

from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import Grant
from forge_schema.model.states import Launcher, Phase

from forge_worker.attempt.attempt import LiveAttempt
from forge_worker.gang.launchers import launched
from forge_worker.job_runs.job_environment import container_name, run_spec
from forge_worker.job_runs.job_state import kept_stop, record_of
from forge_worker.job_runs.parts import Parts
from forge_worker.job_runs.services import JobServices
from forge_worker.prepare.bundle import BundleCache, archive
from forge_worker.prepare.inputs.provision import fetched_places
from forge_worker.prepare.python_env import ENV
from forge_worker.queue.objects import Objects
from forge_worker.runners.runner import Handle, RunSpec


def started(parts: Parts) -> Handle:
    """Prepare a job and start it.

    Raises:
        Stopped: it was stopped before its start.
        ForgeError, OSError: it cannot be started.
    """
    parts.attempt.while_wanted()
    spec = _prepare(parts)
    if parts.attempt.grant.nodes > 1:
        gang, launcher = parts.gatherer.gather(), parts.attempt.grant.spec.get("launcher")
        spec = launched(gang, spec, parts.runner, launcher or Launcher.NONE)
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
