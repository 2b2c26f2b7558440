"""What an agent that was killed left on this machine, and how its next boot clears it away."""

from pathlib import Path

import structlog
from forge_schema.errors import ForgeError
from forge_schema.lease import End
from forge_schema.states import Reason

from forge_worker.folders import Folders
from forge_worker.gateway import Gateway
from forge_worker.runners.runner import Runner

log = structlog.get_logger(__name__)


def clear(worker: str, jobs: Path, runners: list[Runner], gateway: Gateway) -> None:
    """Kill what still runs, give the leases back, remove the folders; in that order."""
    for runner in runners:
        for leftover in runner.leftovers(worker):
            log.warning("reaping what an earlier agent left", job=leftover.name, kind=runner.kind)
            runner.reap(leftover)
    for root in sorted(jobs.iterdir()):
        folders = Folders(root)
        _give_back(folders, gateway)
        folders.remove()


def _give_back(folders: Folders, gateway: Gateway) -> None:
    fence = folders.fence()
    if fence is None:
        return
    try:
        gateway.finish([End(fence, Reason.WORKER_LOST, detail="the agent was restarted")])
    except ForgeError as error:
        # The lease expires by itself; only time is lost.
        log.warning("a lease could not be given back", job=fence.job_id, error=error.message)
