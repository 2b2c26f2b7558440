"""What is left of jobs that nobody goes on with, and how it is cleared away."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import End, Fence
from forge_schema.model.states import Reason

from forge_worker.job_runs import job_state
from forge_worker.job_runs.folders import Folders
from forge_worker.queue.gateway import Gateway
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.runners.runner import Leftover, Own, Runner
from forge_worker.startup import worker_folder

log = structlog.get_logger(__name__)


def survivors(folder: Path, runners: Sequence[Runner]) -> dict[str, tuple[Runner, Leftover]]:
    """Return by name what runs of the jobs of a worker's folder; whoever calls holds its lock.

    Raises:
        EngineUnreachable: the engine cannot say what it runs.
    """
    own, carried = own_of(folder), str(worker_folder.known_id(folder) or "none")
    return {left.name: (one, left) for one in runners for left in one.leftovers(carried, own)}


def own_of(folder: Path) -> Own:
    """Return what tells whether a leftover that carries no id is of a worker's folder.

    It is if a job's record names it: the name holds the lease's random nonce.
    """
    records = (job_state.runs_in(Folders(root)) for root in jobs_in(folder))
    names = {name for kept in records if kept for _, name in [kept]}
    return lambda left: left.name in names


def jobs_in(folder: Path) -> list[Path]:
    """Return the folders of the jobs that lie in a worker's folder."""
    jobs = folder / "jobs"
    return sorted(jobs.iterdir()) if jobs.is_dir() else []


def may_run(folders: Folders, runners: Sequence[Runner]) -> bool:
    """Tell whether a job may run in a container of an engine that was not asked."""
    kept = job_state.runs_in(folders)
    return kept is not None and kept[0] == DockerRunner.kind not in {one.kind for one in runners}


def reap(found: Iterable[tuple[Runner, Leftover]]) -> None:
    """Kill what still runs."""
    for runner, leftover in found:
        log.warning("reaping what an earlier agent left", job=leftover.name, kind=runner.kind)
        runner.reap(leftover)


def clear(
    folders: Iterable[Folders],
    runners: Sequence[Runner],
    gateway: Gateway | None,
    spooled: Collection[Fence] = (),
) -> None:
    """Give leases back and remove the folders, once nothing runs in them any more.

    Whose end waits in the spool ends with that. Without a gateway, leases run out by themselves.
    """
    for one in folders:
        if may_run(one, runners):
            # It is for a start at which the engine answers.
            log.warning("left, as no engine was asked for its container", folder=str(one.root))
            continue
        fence = one.fence()
        if gateway is not None and fence is not None and fence not in spooled:
            _give_back(fence, gateway)
        one.remove()


def _give_back(fence: Fence, gateway: Gateway) -> None:
    try:
        gateway.finish([End(fence, Reason.WORKER_LOST, detail="the agent was restarted")])
    except ForgeError as error:
        # The lease expires by itself; only time is lost.
        log.warning("a lease could not be given back", job=fence.job_id, error=error.message)
