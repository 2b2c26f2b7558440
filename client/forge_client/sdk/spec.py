"""The fields of a job as a type, for editors and type checkers.

A test compares them with the model that checks the fields when a job is submitted.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

Time: TypeAlias = float | str | timedelta
"""A duration, in seconds where it is a number, or text such as `90s` or `1h30m`."""

Amount: TypeAlias = int | str
"""Bytes, or text such as `512MiB`."""


class SubmittedJob(Protocol):
    """A job with an id, such as `Job`."""

    @property
    def id(self) -> int:
        """The job's id."""


JobIds: TypeAlias = int | str | SubmittedJob | Iterable[int | SubmittedJob]


class ChangedSpec(TypedDict, total=False):
    """The fields that can be changed while a job waits, by their names in forge.toml."""

    queue: str | None
    priority: int | None
    target: str | None
    labels: Mapping[str, str] | None
    timeout: Time | None
    backoff: Time | None
    checkpoint_interval: Time | None
    grace: Time | None
    keep_checkpoints: int | None
    max_failures: int | None
    max_losses: int | None
    max_preemptions: int | None
    # The table `resources`.
    cpus: float | None
    memory: Amount | None
    disk: Amount | None
    gpus: int | None
    gpu_model: str | None
    vram: Amount | None
    accelerator: str | None
    spot: str | None
    max_price: float | None
    # The table `stall`.
    no_progress: Time | None
    silent_log: Time | None
    idle_gpu: Time | None
    idle_gpu_percent: float | None


class CommonSpec(ChangedSpec, total=False):
    """The fields that every kind of job takes."""

    image: str | None
    image_tar: str | None
    dockerfile: str | None
    nodes: int | str | None
    launcher: str | None
    same: str | None
    mixed: bool | None
    env: Mapping[str, str] | None
    inputs: Mapping[str, str] | None
    delay: Time | None
    preempt_signal: str | None
    checkpoint_dir: str | None
    checkpoint: Sequence[str] | None
    from_checkpoint: int | str | None
    kind: str | None
    junit: str | None
    parameters: Mapping[str, Any] | None
    experiment: str | None
    sweep: str | None
    parallel: int | None
    requirements: str | Literal[False] | None
    extras: Sequence[str] | str | None
    groups: Sequence[str] | str | None
    secrets: Sequence[str] | None
    tags: Sequence[str] | None
    # The table `tuning`.
    precision: str | None
    streams: int | None
    objective: str | None


class NamedSpec(CommonSpec, total=False):
    """The fields of a job that runs a program or a handler of its own."""

    name: str | None
    idempotency_key: str | None
    after: JobIds | None
    after_ok: JobIds | None
    after_any: JobIds | None


class RepeatedSpec(CommonSpec, total=False):
    """The fields of the jobs that a schedule submits."""

    handler: str | None
    arguments: Mapping[str, Any] | None


class KeptSpec(RepeatedSpec, total=False):
    """The fields of a template."""

    name: str | None


class JobSpec(NamedSpec, RepeatedSpec, total=False):
    """The fields of a job; docs/forge-toml.md explains them."""


class JobWithCommand(JobSpec, total=False):
    """The fields of one job among many, with its command; a string is split as in a shell."""

    command: Sequence[str] | str | None
