"""The options of all commands that submit jobs, and how they change a request."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from forge_client.cli.options.completion import experiments, queues
from forge_client.cli.options.job_command import environment
from forge_client.cli.options.job_names import checkpoint, needed
from forge_client.cli.options.values import labels
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
BackoffOption = Annotated[
    str | None,
    typer.Option(
        "--backoff", help="Pause before the first retry, e.g. 30s; it grows from then on."
    ),
]
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
        help="File that lists what to install; default: the project's lock, or else its list.",
    ),
]
ExtraOption = Annotated[
    list[str] | None,
    typer.Option("--extra", help="Install these optional dependencies of the project too."),
]
GroupOption = Annotated[
    list[str] | None,
    typer.Option("--group", help="Install this dependency group of the project too."),
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
CheckpointOption = Annotated[
    list[str] | None,
    typer.Option(
        "--checkpoint",
        metavar="PATTERN",
        help="Files in the project's folder that checkpoints hold too, e.g. '*.pt'; repeatable.",
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


# Options that are named as the fields of a request.
SAME = (
    *("name", "gpu_model", "vram", "accelerator", "cpus", "memory", "disk", "image", "image_tar"),
    *(
        "dockerfile",
        "priority",
        "queue",
        "max_failures",
        "backoff",
        "timeout",
        "target",
        "idempotency_key",
    ),
    *("checkpoint_interval", "grace", "delay", "precision", "streams", "objective"),
    *("preempt_signal", "checkpoint_dir", "keep_checkpoints", "from_checkpoint", "after"),
    *("after_ok", "after_any", "nodes", "launcher", "same", "mixed", "experiment", "junit"),
)


def changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a command's parameters that are options of a job as fields of a request."""
    return {
        **{name: given.get(name) for name in SAME},
        "gpus": given.get("gpu"),
        "labels": labels(given.get("label") or []),
        "env": environment(given.get("env") or []),
        "secrets": given.get("secret"),
        "extras": given.get("extra"),
        "groups": given.get("group"),
        "checkpoint": given.get("checkpoint") or None,
        "requirements": False if given.get("no_install") else given.get("requirements"),
        "no_progress": given.get("stall_no_progress"),
        "silent_log": given.get("stall_silent_log"),
        "idle_gpu": given.get("stall_idle_gpu"),
    }
