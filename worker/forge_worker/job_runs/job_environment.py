"""The environment of a job: its folders, variables and limits."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from forge_worker.attempt import LiveAttempt
from forge_worker.machine.slots import MachineSlot
from forge_worker.runners.runner import FOLDER_LABEL, QUEUE_LABEL, WORKER_LABEL, Runner, RunSpec

PREEMPT_FILE = "FORGE_PREEMPT_FILE"


@dataclass(frozen=True, slots=True)
class Host:
    """The worker's details that a job sees, and the ids by which its container is found again."""

    worker: str
    folder_id: str
    queue_id: str
    accelerator: str
    default_image: str


def run_spec(attempt: LiveAttempt, slot: MachineSlot, runner: Runner, host: Host) -> RunSpec:
    """Return the data that a runner needs to start an attempt."""
    grant, folders = attempt.grant, attempt.folders
    spec = RunSpec(
        name=container_name(attempt),
        command=tuple(grant.spec["command"]),
        env={},
        work_dir=folders.work,
        output_dir=folders.output,
        checkpoint_dir=attempt.saved.path,
        control_dir=folders.control,
        tmp_dir=folders.tmp,
        log_path=folders.log,
        image=grant.spec.get("image") or host.default_image or None,
        cpus=slot.cpus,
        memory_mb=slot.memory_mb,
        gpu_uuids=slot.gpu_uuids,
        gpu_vendor=slot.gpu_vendor,
        grace_s=float(grant.spec["grace_s"]),
        labels=labels(attempt, host),
    )
    device = host.accelerator if slot.gpu_uuids else "cpu"
    own = {
        "FORGE_BATCH_SIZE_HINT": str(slot.batch_size),
        # Ids of jobs overlap between queues; a tracker may serve several.
        "FORGE_RUN": f"forge-{host.queue_id[:8]}-{attempt.fence.job_id}",
    }
    environment = {**variables(attempt, spec, runner, device), **own}
    return replace(spec, env={**grant.spec["env"], **environment})


def container_name(attempt: LiveAttempt) -> str:
    """Return the name of an attempt's container."""
    # One engine may serve workers of several queues, whose job ids overlap.
    return f"forge-{attempt.fence.job_id}-{attempt.grant.attempt}-{attempt.mark}"


def labels(attempt: LiveAttempt, host: Host) -> dict[str, str]:
    """Return the labels that identify an attempt's container or process later."""
    return {
        WORKER_LABEL: host.worker,
        FOLDER_LABEL: host.folder_id,
        QUEUE_LABEL: host.queue_id,
        "forge.job": str(attempt.fence.job_id),
        "forge.attempt": str(attempt.grant.attempt),
        "forge.token": str(attempt.fence.token),
    }


def variables(attempt: LiveAttempt, spec: RunSpec, runner: Runner, device: str) -> dict[str, str]:
    """Return the FORGE_* variables, with the folders' paths inside the job."""
    paths = runner.paths(spec)
    return {
        "FORGE_JOB_ID": str(attempt.fence.job_id),
        "FORGE_ATTEMPT": str(attempt.grant.attempt),
        "FORGE_CHECKPOINT_DIR": str(paths.checkpoint_dir),
        "FORGE_OUTPUT_DIR": str(paths.output_dir),
        PREEMPT_FILE: str(paths.control_dir / attempt.folders.preempt.name),
        "FORGE_CHECKPOINT_FILE": str(paths.control_dir / attempt.folders.save.name),
        "FORGE_METRICS_FILE": str(paths.control_dir / attempt.folders.metrics.name),
        "FORGE_DEVICE": device,
        "PYTHONUNBUFFERED": "1",
        **_variables(attempt.grant.spec),
    }


def _variables(asked: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables with the parameters, tuning values and experiment of the job."""
    tuning, parameters = asked.get("tuning", {}), asked.get("parameters", {})
    values = {f"FORGE_{name.upper()}": value for name, value in tuning.items() if value is not None}
    values |= {f"FORGE_PARAM_{name.upper()}": value for name, value in parameters.items()}
    words = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
    }
    if experiment := asked.get("experiment"):
        words["FORGE_EXPERIMENT"] = experiment
    return words | ({"FORGE_PARAMETERS": json.dumps(parameters)} if parameters else {})
