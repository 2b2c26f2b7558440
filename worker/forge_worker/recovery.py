"""`--recover` and `--reset-state`: what an agent that was killed left here is cleared away.

Whoever calls holds the folder's lock. Everything may be cut off and done again.
"""

from collections.abc import Iterator
from contextlib import ExitStack, suppress

from forge_schema.errors import ForgeError
from forge_schema.lease import End
from forge_schema.states import Reason

from forge_worker import direct, over_http, quarantine, state_file
from forge_worker.below import weight
from forge_worker.folders import Folders
from forge_worker.gateway import Gateway
from forge_worker.removal import remove_tree
from forge_worker.runners.confinement import confinement_of, left_behind
from forge_worker.runners.docker import DockerRunner, engine_answers
from forge_worker.runners.process import ProcessRunner
from forge_worker.runners.runner import Runner
from forge_worker.settings import WorkerSettings

# What a worker keeps besides its jobs, and what goes with it.
STATE = {
    "bundles": "code, which is fetched again",
    "images": "images' files, which are fetched again",
    "envs": "environments, which are installed again",
    "caches": "model caches, which jobs fill again",
    "spool": "results that were not delivered, which are lost",
    "name": "the name, in place of which a new one is made up",
}
KEPT = {"lock"}


def recover(settings: WorkerSettings) -> Iterator[str]:
    """Clear what a killed agent left, and say what was done."""
    runners = list(_runners(settings))
    kinds = {runner.kind for runner in runners}
    if settings.runner != "process" and DockerRunner.kind not in kinds:
        yield "no container engine answers: containers are left, if there are any"
    yield from _ended(settings, runners)
    yield from _given_back(settings)
    for uuid in quarantine.release(settings.worker_dir):
        yield f"GPU {uuid} is lent again"
    for name in (state_file.NAME, f"{state_file.NAME}.new", "state.new"):
        (settings.worker_dir / name).unlink(missing_ok=True)
    yield "recovered: nothing of an earlier agent is left"


def reset(settings: WorkerSettings) -> Iterator[str]:
    """As `recover`, and forget all that the worker keeps; first say what that is."""
    folder = settings.worker_dir
    doomed = {name: about for name, about in STATE.items() if (folder / name).exists()}
    doomed |= {path.name: "was put aside as broken" for path in folder.glob("*.broken-*")}
    for name, about in doomed.items():
        place = folder / name
        size = weight(place) if place.is_dir() else place.stat().st_size
        yield f"to be removed: {place} ({size >> 20} MiB): {about}"
    yield from recover(settings)
    for name in doomed:
        if not remove_tree(folder / name):
            yield f"could not be removed: {folder / name}"
    for other in sorted({path.name for path in folder.iterdir()} - KEPT - {"jobs"}):
        yield f"left, since no worker made it: {folder / other}"
    yield "reset: the next start is as the first"


def _runners(settings: WorkerSettings) -> Iterator[Runner]:
    if settings.runner != "process" and engine_answers():
        yield DockerRunner()
    yield ProcessRunner()


def _ended(settings: WorkerSettings, runners: list[Runner]) -> Iterator[str]:
    worker = settings.known_name()
    for runner in runners:
        for left in runner.leftovers(worker) if worker else []:
            runner.reap(left)
            yield f"ended {left.name}, which still ran ({runner.kind})"
    jobs = settings.worker_dir / "jobs"
    for root in jobs.iterdir() if jobs.is_dir() else []:
        for name in left_behind(f"forge-{root.name}-"):
            confinement_of(name).end()
            yield f"removed the control group {name}"


def _given_back(settings: WorkerSettings) -> Iterator[str]:
    jobs = settings.worker_dir / "jobs"
    roots = sorted(jobs.iterdir()) if jobs.is_dir() else []
    if not roots:
        return
    with ExitStack() as stack:
        gateway = None
        try:
            gateway = _gateway(settings, stack)
        except ForgeError as error:
            yield f"leases are not given back and run out by themselves: {error.message}"
        for root in roots:
            yield _cleared(Folders(root), gateway)


def _gateway(settings: WorkerSettings, stack: ExitStack) -> Gateway:
    if not settings.queue_is_named:
        raise QueueNotNamed("the queue is not named here")
    transport = over_http.transport if settings.url else direct.transport
    return stack.enter_context(transport(settings)).gateway


class QueueNotNamed(ForgeError):
    """No queue is named to which leases could be given back."""

    code = "queue_not_named"


def _cleared(folders: Folders, gateway: Gateway | None) -> str:
    fence = folders.fence()
    said = "its lease cannot be read, and runs out by itself"
    if fence is not None:
        said = f"the lease of job {fence.job_id} runs out by itself"
        end = End(fence, Reason.WORKER_LOST, detail="the worker was recovered")
        with suppress(ForgeError):
            if gateway is not None and gateway.finish([end])[0].accepted:
                said = f"the lease of job {fence.job_id} was given back"
            elif gateway is not None:
                said = f"the lease of job {fence.job_id} had run out"
    folders.remove()
    return f"removed {folders.root}: {said}"
