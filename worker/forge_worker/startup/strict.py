"""The strict policy in an agent that cannot work yet: what an earlier one left does not run on."""

from threading import Event

import structlog
from forge_schema.model.errors import ForgeError

from forge_worker.job_runs import leftovers
from forge_worker.runners.docker.runner import DockerRunner, engine_answers
from forge_worker.settings.settings import WorkerSettings

log = structlog.get_logger(__name__)


def end_leftovers(settings: WorkerSettings) -> None:
    """End the containers that an earlier agent left, where the policy is strict.

    Nobody knows how long their leases still hold. A process has ended with its agent.
    """
    if settings.lease_policy != "strict" or settings.runner == "process" or not engine_answers():
        return
    try:
        leftovers.reap(leftovers.survivors(settings.worker_dir, [DockerRunner()]).values())
    except ForgeError as error:
        log.warning("containers may run past their leases", error=error.message)


def pause(settings: WorkerSettings, pause_s: float) -> None:
    """Wait before a start, with nothing left running that nobody watches."""
    end_leftovers(settings)
    Event().wait(pause_s)
