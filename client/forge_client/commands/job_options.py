"""The options that every command which submits jobs has, and what they change of a request."""

from typing import Annotated

import typer

ShareOption = Annotated[
    bool | None,
    typer.Option(
        "--share/--no-share", help="Small jobs of yours may run in one container, in turn."
    ),
]
NameOption = Annotated[str | None, typer.Option("--name", help="The folder's name by default.")]
GpuOption = Annotated[int | None, typer.Option("--gpu", "--gpus", help="How many.", min=0)]
CpusOption = Annotated[float | None, typer.Option("--cpus", help="CPUs, may be a fraction.")]
MemoryOption = Annotated[str | None, typer.Option("--memory", help="Such as 2GB.")]
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
