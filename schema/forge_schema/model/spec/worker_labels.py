"""What a job needs of its worker that no number says: labels which workers have for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forge_schema.model.spec.inputs import worker_labels
from forge_schema.model.spec.parts import (
    ALL_PORTS,
    GANG_NETWORK,
    HANDLERS,
    IMAGES,
    RUNS,
    RUNS_BUILDS,
    RUNS_IMAGES,
    RUNS_LAUNCHERS,
    RUNS_PROJECTS,
    SECRET,
    owner_mark,
)
from forge_schema.model.states import Launcher

if TYPE_CHECKING:
    from forge_schema.model.spec.job_spec import JobSpec


def needed_labels(job: JobSpec) -> dict[str, Any]:
    """Return the labels that a worker must have, with a pattern of each one's value.

    With these come the wishes about its price and its being a spot machine.
    """
    # Training libraries and launchers listen on ports of their own choice.
    fixed = job.nodes == 1 or job.launcher in {None, Launcher.NONE}
    secrets = {SECRET + name: f"*,{owner_mark(job.owner)},*" for name in job.secrets}
    ports = {} if fixed else {GANG_NETWORK: ALL_PORTS}
    named = any(getattr(job, name) is not None for name in IMAGES)
    inputs = worker_labels(job.inputs, RUNS_IMAGES if named else RUNS_PROJECTS)
    return _kind_of_worker(job) | secrets | ports | inputs | job.resources.wishes()


def starts_alone(job: JobSpec) -> bool:
    """Tell whether a launcher starts the job's processes on its one machine."""
    single = job.nodes == 1 and job.max_nodes is None and job.handler is None
    return single and job.launcher is not None and job.launcher.starts_alone


def _kind_of_worker(job: JobSpec) -> dict[str, str]:
    if job.handler is not None:
        return {HANDLERS: f"*,{job.handler},*"}
    named = job.image is not None or job.image_tar is not None
    kind = RUNS_IMAGES if named else RUNS_PROJECTS
    kind = RUNS_BUILDS if job.dockerfile is not None else kind
    return {RUNS: f"*{kind}*" + f"{RUNS_LAUNCHERS}*" * starts_alone(job)}
