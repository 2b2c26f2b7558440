"""What is said of jobs just submitted: their state, what they get, and who could run them."""

from collections.abc import Mapping
from typing import Any

from forge_schema.model.job import JobDetail
from forge_schema.model.quantities import MIB, size_text

from forge_client.backend import Backend
from forge_client.cli.show import narration
from forge_client.errors import ClientError

# What `explain` calls a job that no worker takes, and how that is said here.
NOBODY = {
    "no_worker": "no online worker can run it",
    "unfit": "no online worker can run it",
    "unavailable": "no worker that can run it takes jobs now",
}
WORDS = {"ready": "queued"}


def tell_job(job: JobDetail) -> None:
    """Say that a job was submitted, and what it gets."""
    gets = resources(job.spec.get("resources"))
    state = WORDS.get(job.state, job.state)
    narration.say(f"job {job.job_id} {job.name!r} is {state}{f': {gets}' if gets else ''}")


def tell_nobody(backend: Backend, job_id: int) -> None:
    """Say it if no online worker can run a job, by the same look as `forge explain`."""
    try:
        found = backend.explain(job_id, workers=0)
    except ClientError:
        return  # it is submitted, whatever becomes of this look
    said = NOBODY.get(found.outlook)
    if said is None:
        return
    advice = f": {found.remedies[0].text}" if found.remedies else ""
    narration.say(f"{said}{advice} (`forge explain {job_id}` says more)", style="yellow")


def resources(asked: object) -> str:
    """Return what a job asks for in a line: `1 GPU, a share of its worker's CPUs and memory`."""
    if not isinstance(asked, Mapping):
        return ""
    memory, disk = asked.get("memory_mb"), asked.get("disk_mb")
    parts = [
        *_gpus(asked),
        *([_count(asked["cpus"], "CPU")] if asked.get("cpus") else []),
        *([f"{size_text(memory * MIB)} of memory"] if memory else []),
        *_shares(asked),
        *([f"{size_text(disk * MIB)} of disk"] if disk else []),
    ]
    return ", ".join(parts)


def _gpus(asked: Mapping[str, Any]) -> list[str]:
    if not asked.get("gpus"):
        return [] if asked.get("accelerator") in {None, "any"} else [str(asked["accelerator"])]
    model, vram = asked.get("gpu_model", "*"), asked.get("vram_mb")
    kind = "" if model == "*" else f" like {model}"
    room = f" with {size_text(vram * MIB)}" if vram else ""
    device = "" if asked.get("accelerator") in {None, "any"} else f" ({asked['accelerator']})"
    return [f"{_count(asked['gpus'], 'GPU')}{kind}{room}{device}"]


def _shares(asked: Mapping[str, Any]) -> list[str]:
    names = {"cpus": "CPUs", "memory_mb": "memory"}
    shares = [word for name, word in names.items() if name in asked and asked[name] is None]
    return [f"a share of its worker's {' and '.join(shares)}"] if shares else []


def _count(number: float, what: str) -> str:
    return f"{number:g} {what}" if number == 1 else f"{number:g} {what}s"
