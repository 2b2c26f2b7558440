"""What a job asks of its machines, in one line, and where it stands, in a word or two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import (
    MIB,
    counted,
    counted_range,
    duration_text,
    exit_in_words,
    names_text,
    size_text,
)
from forge_schema.model.states import reason_in_words

from forge_client.cli.show.output import Column, ago, brief
from forge_client.results.endings import first_line, waiting_for

if TYPE_CHECKING:
    from forge_schema.model.fields import NotFinite
    from forge_schema.model.job import JobDetail, JobStatus, ListedJob
    from forge_schema.model.overview import WorkerUse
    from forge_schema.model.worker import WorkerInfo


def progress(job: JobStatus) -> str:
    """Return the progress of a running job."""
    if job.state != "running":
        return ""
    return f"{job.progress:.0%}" if job.progress is not None else (job.phase or "")


def why(job: JobStatus) -> str:
    """Return the reason for a job's state in a word or two."""
    if job.asked:
        return "ending" if job.asked == "ended" else f"being {job.asked}"
    if job.waits_for:
        return waiting_for(job)
    if job.state == "queued" and (job.run_at or job.kept):
        return f"due {ago(job.run_at)}" if job.run_at else f"{counted(job.kept, 'machine')} kept"
    if job.reason in (None, str(job.state)):
        return ""
    if job.reason == "exit_code":
        return exit_in_words(job.exit_code)
    words = reason_in_words(job.reason)
    return f"{words} ({job.exit_code})" if job.exit_code else words


def why_in_a_list(job: JobStatus) -> str:
    """Return the reason for a job's state, and if it failed the first words of what it said."""
    reason = why(job)
    detail = first_line(job.detail) if reason else ""
    return brief(": ".join(filter(None, [reason, detail])), MOST_WHY)


def workers(job: JobStatus) -> str | None:
    """Return the workers that run a job."""
    return names_text(job.workers) or None


def ran(seconds: float | None) -> str:
    """Return how long a program ran or has run."""
    return "" if seconds is None else duration_text(seconds)


def cost_text(cost: float | None) -> str:
    """Return what something cost, with cents; of less than one, its first digits."""
    return "" if cost is None else f"{cost:.2f}" if cost >= 1 else f"{cost:.2g}"


def metrics_text(metrics: Mapping[str, float | NotFinite], most: int) -> str:
    """Return the first of some metrics: `loss=0.27 accuracy=0.92`."""
    return " ".join(f"{name}={float(value):.4g}" for name, value in [*metrics.items()][:most])


def revision_text(spec: Mapping[str, Any]) -> str:
    """Return the commit that a job's code is based on, for people; empty if it is unknown."""
    git = spec.get("git")
    if not git:
        return ""
    branch = f" on {git['branch']}" if git.get("branch") else ""
    return (
        f"{git['revision'][:12]}{branch}{', with uncommitted changes' if git.get('dirty') else ''}"
    )


def no_patch_text(spec: Mapping[str, Any]) -> str:
    """Return why a job has no patch of uncommitted changes."""
    git = spec.get("git")
    if not git:
        return "its folder was in no git repository, or git was not there"
    if not git.get("dirty"):
        return "everything in its folder was committed"
    return "untracked files are among its files, and of others no change was kept"


def environment_text(spec: Mapping[str, Any]) -> str:
    """Return where a job's packages were taken from, for people; empty if that is unknown."""
    environment = spec.get("environment")
    if not environment:
        return ""
    lock = (
        f", {counted(environment['packages'], 'package')} locked" if environment.get("lock") else ""
    )
    python = f", Python {environment['python']}" if environment.get("python") else ""
    return f"{environment['source']}{lock}{python}"


MOST_METRICS, MOST_WHY = 2, 40
NO_JOBS = "no jobs yet; `forge submit . -- python train.py` submits one"
COLUMNS: list[Column] = [
    ("ID", lambda j: j.job_id),
    ("NAME", lambda j: j.name),
    ("STATE", lambda j: j.state),
    ("PROGRESS", progress),
    ("TIME", lambda j: ran(j.ran_s)),
    ("LAST", lambda j: metrics_text(j.metrics, MOST_METRICS)),
    ("ATTEMPT", lambda j: j.attempt or ""),
    ("WORKER", workers),
    ("WHY", lambda j: why_in_a_list(j) or "no worker can run it" * j.unservable),
    ("QUEUE", lambda j: j.queue),
    ("OWNER", lambda j: j.owner),
    ("SUBMITTED", lambda j: ago(j.submitted_at)),
]
# A run of a range of machines may have more than the job needs.
NODES: Column = ("NODES", lambda j: len(j.workers) or j.nodes)
TAGS: Column = ("TAGS", lambda j: " ".join(j.tags))
# What a narrow terminal does without, the least important first.
DROP = (
    "TAGS",
    "OWNER",
    "QUEUE",
    "WORKER",
    "ATTEMPT",
    "SUBMITTED",
    "NODES",
    "LAST",
    "PROGRESS",
    "TIME",
)


def columns(rows: Sequence[ListedJob]) -> list[Column]:
    """Return the columns for some jobs."""
    several = [NODES] if any(row.nodes > 1 for row in rows) else []
    tags = [TAGS] if any(row.tags for row in rows) else []
    return [*COLUMNS[:3], *several, *COLUMNS[3:], *tags]


def search(backend: Any, text: str, **chosen: Any) -> tuple[list[Any], str]:  # noqa: ANN401 - a `Backend`
    """Return the jobs that match a query, and where a search by name went no further.

    No index finds a name: only so many of the newest jobs are looked at.
    """
    if not any(map(_is_name, text.split())):
        return backend.jobs(text, **chosen), ""
    try:
        page = backend.search(text, **chosen)
    except ForgeError as error:
        from forge_client.compatibility import knows_no_search  # noqa: PLC0415 - few need it

        if not knows_no_search(error):
            raise
        return backend.jobs(text, **chosen), ""
    more = f"looked at the newest jobs, down to {page.before}; --before {page.before} continues"
    return page.items, more if page.before else ""


def _is_name(word: str) -> bool:
    return word.startswith("name:") or (":" not in word and not word.isdecimal())


def resources(job: JobDetail) -> str:
    """Return a job's resources in one line: `1 GPU, a share of its worker's CPUs and memory`."""
    asked = job.spec.get("resources")
    if not isinstance(asked, Mapping):
        return ""
    most = job.spec.get("max_nodes", job.nodes)
    many = counted_range(job.nodes, most, "machine")
    whose = f"{many}, each with " if job.nodes > 1 else ""
    return whose + _of_a_machine(asked)


def _of_a_machine(asked: Mapping[str, Any]) -> str:
    memory, disk = asked.get("memory_mb"), asked.get("disk_mb")
    parts = [
        *_gpus(asked),
        *([counted(asked["cpus"], "CPU")] if asked.get("cpus") else []),
        *([f"{size_text(memory * MIB)} of memory"] if memory else []),
        *_shares(asked),
        *([f"{size_text(disk * MIB)} of disk"] if disk else []),
        *([f"spot machines: {asked['spot']}"] if asked.get("spot") else []),
        *([f"at most {asked['max_price']:g} an hour"] if "max_price" in asked else []),
    ]
    return ", ".join(parts)


def _gpus(asked: Mapping[str, Any]) -> list[str]:
    if not asked.get("gpus"):
        return [] if asked.get("accelerator") in {None, "any"} else [str(asked["accelerator"])]
    model, vram = asked.get("gpu_model", "*"), asked.get("vram_mb")
    kind = "" if model == "*" else f" like {model}"
    room = f" with {size_text(vram * MIB)}" if vram else ""
    device = "" if asked.get("accelerator") in {None, "any"} else f" ({asked['accelerator']})"
    return [f"{counted(asked['gpus'], 'GPU')}{kind}{room}{device}"]


def _shares(asked: Mapping[str, Any]) -> list[str]:
    names = {"cpus": "CPUs", "memory_mb": "memory"}
    shares = [word for name, word in names.items() if name in asked and asked[name] is None]
    return [f"a share of its worker's {' and '.join(shares)}"] if shares else []


def heard(worker: WorkerInfo | WorkerUse) -> str:
    """Say when a worker was last heard from; one created by an admin may not have connected yet."""
    if worker.status == "connecting":
        return "not yet"
    return f"{duration_text(worker.silent_s)} ago"
