"""What is left of jobs that nobody goes on with, and how it is cleared away."""

from collections.abc import Iterable, Sequence

import structlog
from forge_schema.errors import ForgeError
from forge_schema.lease import End
from forge_schema.states import Reason

from forge_worker import record
from forge_worker.folders import Folders
from forge_worker.gateway import Gateway
from forge_worker.runners.docker import DockerRunner
from forge_worker.runners.runner import Leftover, Runner

log = structlog.get_logger(__name__)


def reap(found: Iterable[tuple[Runner, Leftover]]) -> None:
    """Kill what still runs."""
    for runner, leftover in found:
        log.warning("reaping what an earlier agent left", job=leftover.name, kind=runner.kind)
        runner.reap(leftover)


def clear(folders: Iterable[Folders], runners: Sequence[Runner], gateway: Gateway) -> None:
    """Give leases back and remove the folders, once nothing runs in them any more."""
    kinds = {runner.kind for runner in runners}
    for one in folders:
        kept = record.read(one)
        if kept is not None and kept.kind == DockerRunner.kind not in kinds:
            # Its container may well run; it is for a start at which the engine answers.
            log.warning("left, as no engine answers", job=kept.attempt.fence.job_id)
            continue
        _give_back(one, gateway)
        one.remove()


def _give_back(folders: Folders, gateway: Gateway) -> None:
    fence = folders.fence()
    if fence is None:
        return
    try:
        gateway.finish([End(fence, Reason.WORKER_LOST, detail="the agent was restarted")])
    except ForgeError as error:
        # The lease expires by itself; only time is lost.
        log.warning("a lease could not be given back", job=fence.job_id, error=error.message)
