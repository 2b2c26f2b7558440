"""`--recover` and `--reset-state`: clean up what a killed agent left here.

The caller must hold the folder's lock. Every step may be interrupted and repeated.
"""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from time import time_ns

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End
from forge_schema.model.quantities import size_text
from forge_schema.model.states import Reason

from forge_worker import worker_folder
from forge_worker.agent import crashes, outbox, state_file
from forge_worker.agent.outbox import Outbox
from forge_worker.attempt_folders import Folders
from forge_worker.connect import connect
from forge_worker.files.safe_files import remove_tree, weight
from forge_worker.job_runs import job_state, leftovers
from forge_worker.machine import gate, gpu_health, speed
from forge_worker.queue.gateway import Gateway
from forge_worker.runners.choice import for_leftovers
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.runners.process.confinement import confinement_of
from forge_worker.runners.runner import Runner
from forge_worker.settings.settings import WorkerSettings
from forge_worker.worker_folder import ID_FILE, QUEUE_FILE

# What a worker keeps besides its jobs, and what is lost with it.
STATE = {
    "bundles": "code, which is fetched again",
    "images": "images' files, which are fetched again",
    "envs": "environments, which are installed again",
    "caches": "model caches, which jobs fill again",
    "warm": "notes of what is in these folders",
    speed.FILE: "the machine's speed, which is measured again",
    outbox.FILE: "results of jobs not yet delivered to the queue",
    "name": "the name, which is replaced by a new one",
}
# The queue may still identify the worker by its id.
KEPT = {"lock", worker_folder.ID_FILE, worker_folder.QUEUE_FILE}

FOLDERS = ("jobs", "bundles", "images", "envs", "caches")
OWN_FILES = (gpu_health.FILE, gate.FILE, speed.FILE, crashes.FILE, outbox.FILE)
FILES = ("name", ID_FILE, QUEUE_FILE, state_file.NAME, *OWN_FILES)

log = structlog.get_logger(__name__)


def recover(settings: WorkerSettings) -> Iterator[str]:
    """Clean up what a killed agent left, and yield what was done.

    Raises:
        NotRecovered: a job may still run in a container, so its folder was kept.
    """
    records = [job_state.runs_in(Folders(root)) for root in leftovers.jobs_in(settings.worker_dir)]
    runners = [*for_leftovers(settings, {kept[0] for kept in records if kept})]
    kinds = {runner.kind for runner in runners}
    if settings.uses_engine and DockerRunner.kind not in kinds:
        yield "no container engine answers: containers are left alone, if there are any"
    yield from _ended(settings, runners)
    yield from _given_back(settings, runners)
    _forget(settings.worker_dir)
    for uuid in gpu_health.release(settings.worker_dir):
        yield f"GPU {uuid} is given to jobs again"
    if gate.forget(settings.worker_dir):
        yield "the machine is not set aside any more"
    yield "recovered: nothing is left of an earlier agent"


class NotRecovered(ForgeError):
    """Something of an earlier agent may be left."""


def _forget(folder: Path) -> None:
    if left := leftovers.jobs_in(folder):
        raise NotRecovered(
            f"recovery is incomplete: {', '.join(map(str, left))} could not be removed",
            hint="try again once the container engine answers and the folders can be removed",
        )
    for name in (state_file.NAME, f"{state_file.NAME}.new", crashes.FILE):
        (folder / name).unlink(missing_ok=True)


def reset(settings: WorkerSettings) -> Iterator[str]:
    """As `recover`, and remove the worker's state; first yield what will be removed."""
    folder = settings.worker_dir
    doomed = {name: about for name, about in STATE.items() if (folder / name).exists()}
    doomed |= {path.name: "was put aside as broken" for path in folder.glob("*.broken-*")}
    for name, about in doomed.items():
        place = folder / name
        size = weight(place) if place.is_dir() else place.stat().st_size
        yield f"to be removed: {place} ({size_text(size)}): {about}"
    yield from recover(settings)
    for name in doomed:
        if not remove_tree(folder / name):
            yield f"could not be removed: {folder / name}"
    for other in sorted({path.name for path in folder.iterdir()} - KEPT - {"jobs"}):
        yield f"kept, because no worker created it: {folder / other}"
    yield "reset: the next start will be like the first"


def _ended(settings: WorkerSettings, runners: list[Runner]) -> Iterator[str]:
    survivors = leftovers.survivors(settings.worker_dir, runners)
    for runner, left in survivors.values():
        runner.reap(left)
        yield f"ended {left.name}, which was still running ({runner.kind})"
    for docker in runners:
        if isinstance(docker, DockerRunner):
            docker.sandboxes.tidy(str(worker_folder.known_id(settings.worker_dir) or "none"))
    for root in leftovers.jobs_in(settings.worker_dir):
        # From the record, as another queue's worker may run a job with the same id here.
        kept = job_state.runs_in(Folders(root))
        if kept is not None and (group := confinement_of(kept[1])):
            group.end()
            yield f"removed the control group {kept[1]}"


def _given_back(settings: WorkerSettings, runners: list[Runner]) -> Iterator[str]:
    """Give back leases and remove folders, except for jobs that may still run."""
    folders = [Folders(root) for root in leftovers.jobs_in(settings.worker_dir)]
    ended = [folder for folder in folders if not leftovers.may_run(folder, runners)]
    spooled = outbox.left_in(settings.worker_dir)
    if not ended and not spooled:
        return
    with ExitStack() as stack:
        gateway = None
        try:
            gateway = _gateway(settings, stack)
        except ForgeError as error:
            yield f"leases were not given back and will expire: {error.message}"
        if gateway is not None and spooled:
            yield _delivered(spooled, gateway)
        waiting = spooled.fences() if spooled else []
        for each in ended:
            yield _cleared(each, None if each.fence() in waiting else gateway)


def _delivered(spooled: outbox.Spool, gateway: Gateway) -> str:
    """Deliver the spooled results to the queue, before any lease is given back."""
    count = len(spooled.ends())
    with suppress(ForgeError):
        Outbox(gateway, spooled).step()
    left = len(spooled.ends())
    return f"results delivered to the queue: {count - left}; still waiting: {left}"


def _gateway(settings: WorkerSettings, stack: ExitStack) -> Gateway:
    if not settings.queue_is_named:
        raise QueueNotNamed("no queue is configured here")
    # Act as the worker that left these jobs, without generating a new name.
    named = settings.model_copy(update={"worker_name": _earlier_name(settings)})
    return stack.enter_context(connect(named)).gateway


def _earlier_name(settings: WorkerSettings) -> str:
    name = state_file.read(settings.worker_dir).get("worker")
    named = settings.worker_name or (name if isinstance(name, str) else "")
    return named or settings.known_name() or "unnamed"


class QueueNotNamed(ForgeError):
    """No queue is configured to which leases could be given back."""


def _cleared(folders: Folders, gateway: Gateway | None) -> str:
    fence = folders.fence()
    detail = "its lease cannot be read, and will expire"
    if fence is not None:
        detail = f"the lease of job {fence.job_id} will expire"
        end = End(fence, Reason.WORKER_LOST, detail="the worker was recovered")
        with suppress(ForgeError):
            if gateway is not None and gateway.finish([end])[0].accepted:
                detail = f"the lease of job {fence.job_id} was given back"
            elif gateway is not None:
                detail = f"the lease of job {fence.job_id} had expired"
    folders.remove()
    return f"removed {folders.root}: {detail}"


def put_aside(folder: Path) -> None:
    """Rename files where folders should be, and folders where files should be.

    The caller must hold the folder's lock. Damaged content is handled by its readers.
    """
    wrong = [folder / name for name in FOLDERS if _there(folder / name, is_dir=False)]
    wrong += [folder / name for name in FILES if _there(folder / name, is_dir=True)]
    for path in wrong:
        aside = path.with_name(f"{path.name}.broken-{time_ns()}")
        path.rename(aside)
        log.warning("foreign_file_moved_aside", path=str(aside))


def _there(path: Path, *, is_dir: bool) -> bool:
    return path.is_dir() if is_dir else path.exists() and not path.is_dir()
