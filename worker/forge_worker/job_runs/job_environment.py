"""What a job finds around it: its folders, its variables, its limits."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from forge_worker.attempt.attempt import Attempt
from forge_worker.machine.slots import Slot
from forge_worker.runners.runner import FOLDER_LABEL, QUEUE_LABEL, WORKER_LABEL, Runner, RunSpec


@dataclass(frozen=True, slots=True)
class Host:
    """What a job is told of the worker that runs it, and by which ids it is found again."""

    worker: str
    folder_id: str
    queue_id: str
    accelerator: str
    default_image: str


def run_spec(attempt: Attempt, slot: Slot, runner: Runner, host: Host) -> RunSpec:
    """Return what the runner needs to start an attempt."""
    grant, folders = attempt.grant, attempt.folders
    spec = RunSpec(
        name=container_name(attempt),
        command=tuple(grant.spec["command"]),
        env={},
        work_dir=folders.work,
        output_dir=folders.output,
        checkpoint_dir=folders.checkpoint,
        control_dir=folders.control,
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
    memory_mb = slot.vram_mb if slot.gpu_uuids else slot.memory_mb
    hint = {"FORGE_BATCH_SIZE_HINT": str(batch_size(memory_mb))}
    told = {**variables(attempt, spec, runner, device), **hint}
    return replace(spec, env={**grant.spec["env"], **told})


def container_name(attempt: Attempt) -> str:
    """Return the name of an attempt's container."""
    # One engine may serve workers of several queues, whose numbers are the same.
    return f"forge-{attempt.fence.job_id}-{attempt.grant.attempt}-{attempt.mark}"


def batch_size(memory_mb: int) -> int:
    """Return a size of batch to begin with: four samples a GiB, down to a power of two.

    A guess for who knows nothing of the model: 256 on 80 GiB, 64 on 24 GiB, never over 1024.
    """
    samples = min(1024, max(1, memory_mb * 4 // 1024))
    return 1 << (samples.bit_length() - 1)


def labels(attempt: Attempt, host: Host) -> dict[str, str]:
    """Return the labels by which an attempt's container or process is found again."""
    return {
        WORKER_LABEL: host.worker,
        FOLDER_LABEL: host.folder_id,
        QUEUE_LABEL: host.queue_id,
        "forge.job": str(attempt.fence.job_id),
        "forge.attempt": str(attempt.grant.attempt),
        "forge.token": str(attempt.fence.token),
    }


def variables(attempt: Attempt, spec: RunSpec, runner: Runner, device: str) -> dict[str, str]:
    """Return the FORGE_* variables, with the folders as the job itself sees them."""
    paths = runner.paths(spec)
    return {
        "FORGE_JOB_ID": str(attempt.fence.job_id),
        "FORGE_ATTEMPT": str(attempt.grant.attempt),
        "FORGE_CHECKPOINT_DIR": str(paths.checkpoint_dir),
        "FORGE_OUTPUT_DIR": str(paths.output_dir),
        "FORGE_PREEMPT_FILE": str(paths.control_dir / attempt.folders.preempt.name),
        "FORGE_CHECKPOINT_FILE": str(paths.control_dir / attempt.folders.save.name),
        "FORGE_METRICS_FILE": str(paths.control_dir / attempt.folders.metrics.name),
        "FORGE_DEVICE": device,
        "PYTHONUNBUFFERED": "1",
        **_told(attempt.grant.spec),
    }


def _told(asked: Mapping[str, Any]) -> dict[str, str]:
    """Return what the job is told of its parameters and its tuning, as far as it asked for that."""
    tuning, parameters = asked.get("tuning", {}), asked.get("parameters", {})
    told = {f"FORGE_{name.upper()}": said for name, said in tuning.items() if said is not None}
    told |= {f"FORGE_PARAM_{name.upper()}": said for name, said in parameters.items()}
    words = {
        name: said if isinstance(said, str) else json.dumps(said) for name, said in told.items()
    }
    return words | ({"FORGE_PARAMETERS": json.dumps(parameters)} if parameters else {})
