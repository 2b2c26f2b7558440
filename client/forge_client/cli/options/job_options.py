"""The options of all commands that submit jobs, and how they change a request."""

from typing import Annotated, Literal

import typer

from forge_client.cli.options.completion import experiments, queues
from forge_client.cli.options.job_names import checkpoint, needed
from forge_client.errors import ClientError


def secret_names(texts: list[str] | None) -> list[str] | None:
    """Return the names of secrets.

    Raises:
        ClientError: one has a value, which is kept off the queue.
    """
    for name, sign, _ in (text.partition("=") for text in texts or ()):
        if sign:
            raise ClientError(
                f"--secret {name} takes only the name of the secret",
                hint=f"write --secret {name}; the value is a file {name} on the workers, in the"
                " folder that --secrets-dir of forge-worker names",
                code="option_invalid",
            )
    return texts


ShareOption = Annotated[
    bool | None,
    typer.Option(
        "--share/--no-share",
        help="No effect: each job has its own container.",
        hidden=True,
    ),
]
NameOption = Annotated[
    str | None, typer.Option("--name", help="Name of the job; default: the folder's name.")
]
ExperimentOption = Annotated[
    str | None,
    typer.Option(
        "--experiment",
        envvar="FORGE_EXPERIMENT",
        help="Experiment that the job belongs to; default: the folder's name.",
        autocompletion=experiments,
    ),
]
GpuOption = Annotated[int | None, typer.Option("--gpu", "--gpus", help="Number of GPUs.", min=0)]
CpusOption = Annotated[
    float | None, typer.Option("--cpus", help="Number of CPUs; fractions are allowed.")
]
MemoryOption = Annotated[str | None, typer.Option("--memory", help="Memory limit, e.g. 2GiB.")]
ImageOption = Annotated[
    str | None, typer.Option("--image", envvar="FORGE_IMAGE", help="Container image.")
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", help="Required worker label, NAME=VALUE; globs are allowed."),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option("--env", help="NAME=VALUE, or NAME to copy it from your environment."),
]
TimeoutOption = Annotated[str | None, typer.Option("--timeout", help="Time limit, e.g. 90s or 2h.")]
QueueOption = Annotated[
    str | None,
    typer.Option("--queue", envvar="FORGE_QUEUE", help="Queue name.", autocompletion=queues),
]
PriorityOption = Annotated[
    int | None, typer.Option("--priority", help="Priority; higher goes first.")
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key", help="Submitting again with the same key returns the same jobs."
    ),
]
RequirementsOption = Annotated[
    str | None,
    typer.Option(
        "--requirements",
        help="File that lists what to install; default: requirements.txt or pyproject.toml.",
    ),
]
NoInstallOption = Annotated[bool, typer.Option("--no-install", help="Install nothing.")]
SecretOption = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        help="Name of a secret to pass to the job; its value is a file on the workers.",
        callback=secret_names,
    ),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--include", help="Pack files that are left out by default, e.g. .env; .gitignore patterns."
    ),
]
PrecisionOption = Annotated[
    str | None,
    typer.Option("--precision", help="fp32, tf32, fp16, bf16, fp8 or int8; passed to the job."),
]
StreamsOption = Annotated[
    int | None, typer.Option("--streams", help="Number of GPU streams; passed to the job.", min=1)
]
ObjectiveOption = Annotated[
    str | None, typer.Option("--objective", help="throughput or latency; passed to the job.")
]

PreemptSignalOption = Annotated[
    str | None,
    typer.Option(
        "--preempt-signal",
        help="Signal for preemption: SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2.",
    ),
]
CheckpointDirOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint-dir",
        metavar="FOLDER",
        help="The project's folder that is stored as the checkpoint, e.g. trainer_output.",
    ),
]
KeepOption = Annotated[
    int | None,
    typer.Option(
        "--keep-checkpoints",
        help="Number of newest checkpoints to keep; older ones are thinned out.",
    ),
]
FromCheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--from-checkpoint",
        metavar="JOB[:ATTEMPT.NUMBER]",
        callback=checkpoint,
        help="Start from another job's checkpoint; default: its newest.",
    ),
]
AfterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--after", metavar="JOB,…", callback=needed, help="Start once these jobs have begun."
    ),
]
AfterOkOption = Annotated[
    list[str] | None,
    typer.Option(
        "--after-ok", metavar="JOB,…", callback=needed, help="Start once these jobs have succeeded."
    ),
]
AfterAnyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--after-any", metavar="JOB,…", callback=needed, help="Start once these jobs have ended."
    ),
]
NodesOption = Annotated[
    str | None,
    typer.Option(
        "--nodes",
        metavar="N|MIN..MAX",
        help="Number of machines that run it together, or a range such as 2..8.",
    ),
]
LauncherOption = Annotated[
    str | None,
    typer.Option(
        "--launcher",
        help="Launcher for several machines: torchrun, accelerate, deepspeed, mpirun, ray or none.",
    ),
]
SameOption = Annotated[
    str | None,
    typer.Option(
        "--same",
        metavar="LABEL",
        help="Run only on machines with the same value of this label.",
    ),
]
MixedOption = Annotated[
    bool | None,
    typer.Option("--mixed", help="Allow machines with different GPU models."),
]
NoProgressOption = Annotated[
    str | None,
    typer.Option(
        "--stall-no-progress", help="Stop the job after this long without progress, e.g. 30m."
    ),
]
SilentLogOption = Annotated[
    str | None,
    typer.Option("--stall-silent-log", help="Stop the job after this long without output."),
]
IdleGpuOption = Annotated[
    str | None,
    typer.Option("--stall-idle-gpu", help="Stop the job after this long with idle GPUs."),
]


def requirements(path: str | None, *, no_install: bool) -> str | Literal[False] | None:
    """Combine the two options about requirements; None if neither was given."""
    return False if no_install else path
