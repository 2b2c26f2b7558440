"""The options that every command which submits jobs has, and what they change of a request."""

from typing import Annotated, Literal

import typer

ShareOption = Annotated[
    bool | None,
    typer.Option(
        "--share/--no-share",
        help="No effect at present: each job has its own container.",
    ),
]
NameOption = Annotated[str | None, typer.Option("--name", help="The folder's name by default.")]
GpuOption = Annotated[int | None, typer.Option("--gpu", "--gpus", help="How many.", min=0)]
CpusOption = Annotated[float | None, typer.Option("--cpus", help="CPUs, may be a fraction.")]
MemoryOption = Annotated[str | None, typer.Option("--memory", help="Such as 2GiB.")]
ImageOption = Annotated[
    str | None, typer.Option("--image", envvar="FORGE_IMAGE", help="The container image.")
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", help="NAME=VALUE that the worker must have; globs work."),
]
EnvOption = Annotated[
    list[str] | None, typer.Option("--env", help="NAME=VALUE, or NAME to take it from here.")
]
TimeoutOption = Annotated[str | None, typer.Option("--timeout", help="Such as 90s or 2h.")]
QueueOption = Annotated[
    str | None, typer.Option("--queue", envvar="FORGE_QUEUE", help="The queue.")
]
PriorityOption = Annotated[int | None, typer.Option("--priority", help="Higher goes first.")]
KeyOption = Annotated[
    str | None,
    typer.Option("--idempotency-key", help="Submitting again with it finds the same jobs."),
]
RequirementsOption = Annotated[
    str | None,
    typer.Option(
        "--requirements",
        help="In the project: what is installed; requirements.txt or pyproject.toml by itself.",
    ),
]
NoInstallOption = Annotated[bool, typer.Option("--no-install", help="Install nothing.")]
SecretOption = Annotated[
    list[str] | None, typer.Option("--secret", help="The name of a secret that workers keep.")
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--include", help="Pack what would be left out, such as .env; patterns as in .gitignore."
    ),
]
PrecisionOption = Annotated[
    str | None, typer.Option("--precision", help="fp32, tf32, fp16, bf16, fp8, int8: for the job.")
]
StreamsOption = Annotated[
    int | None, typer.Option("--streams", help="GPU streams, for the job to use.", min=1)
]
ObjectiveOption = Annotated[
    str | None, typer.Option("--objective", help="throughput or latency: for the job.")
]

PreemptSignalOption = Annotated[
    str | None,
    typer.Option(
        "--preempt-signal",
        help="What a preempted job is sent: SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2.",
    ),
]
KeepOption = Annotated[
    int | None,
    typer.Option("--keep-checkpoints", help="How many of the newest stay; older ones thin out."),
]
FromCheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--from-checkpoint",
        metavar="JOB[:ATTEMPT.NUMBER]",
        help="Start from a checkpoint of that job's, its newest by default.",
    ),
]
NoProgressOption = Annotated[
    str | None,
    typer.Option("--stall-no-progress", help="Stalled after so long without progress: 30m."),
]
SilentLogOption = Annotated[
    str | None, typer.Option("--stall-silent-log", help="Stalled after so long without output.")
]
IdleGpuOption = Annotated[
    str | None, typer.Option("--stall-idle-gpu", help="Stalled after so long with idle GPUs.")
]


def requirements(path: str | None, *, no_install: bool) -> str | Literal[False] | None:
    """Return what the two options say of what is installed; None where they say nothing."""
    return False if no_install else path
