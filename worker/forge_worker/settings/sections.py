"""Sections of the worker's settings: its machine, the operator's policy, pace and preemption."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

import psutil
from forge_schema.http_client import server_url
from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode


def split_commas(value: object) -> object:
    """Split `a,b` as flags and variables write a list; leave any other value."""
    if not isinstance(value, str):
        return value
    return [word.strip() for word in value.split(",") if word.strip()]


def server_urls(value: object) -> object:
    """Split `https://a,https://b`, and check each URL.

    Raises:
        ValueError: one is not a server's URL.
    """
    urls = split_commas(value)
    return [server_url(str(url)) for url in urls] if isinstance(urls, list) else urls


Policy = Literal["continue", "strict"]
CommaList = Annotated[list[str], NoDecode, BeforeValidator(split_commas)]
ServerUrls = Annotated[list[str], NoDecode, BeforeValidator(server_urls)]
OptionalPath = Annotated[Path | None, BeforeValidator(lambda text: text or None)]
Percent = Annotated[float, Field(gt=0, le=100)]


class MachineSettings(BaseSettings):
    """Resources that jobs may use, and limits of the machine; sizes in MiB, times in seconds."""

    profile: Literal["", "benchmark", "test", "light"] = Field(
        "", description="defaults for a kind of use, see below; what is set besides wins"
    )
    cpus: PositiveFloat = Field(
        default_factory=lambda: float(psutil.cpu_count() or 1),
        description="CPUs to lend",
        json_schema_extra={"default": "all"},
    )
    memory_mb: PositiveInt = Field(
        default_factory=lambda: max(256, (psutil.virtual_memory().total >> 20) - 512),
        description="memory to lend, MiB; never more than there is",
        json_schema_extra={"default": "all but 512"},
    )
    memory_reserve_mb: NonNegativeInt = Field(
        0, description="memory that must stay free on the machine for a new job to start, MiB"
    )
    disk_mb: PositiveInt = Field(102_400, description="disk to lend, MiB; never more than is free")
    disk_floor_mb: NonNegativeInt = Field(
        1024, description="disk that must stay free below --worker-dir for a new job to start, MiB"
    )
    gpus: CommaList = Field(
        default_factory=lambda: ["all"],
        description="GPUs to lend: all, none, or their UUIDs or numbers, by commas",
    )
    lock_dir: OptionalPath = Field(
        None,
        description="where workers of one machine say which GPUs they use; the same for all",
    )
    max_jobs: PositiveInt = Field(64, description="jobs at once, however small they are")
    max_cpu_percent: Percent | None = Field(
        None, description="use of all CPUs past which no new job is taken"
    )
    max_memory_percent: Percent | None = Field(
        None, description="use of the memory past which no new job is taken"
    )
    max_gpu_percent: Percent | None = Field(
        None,
        description="use of a lent GPU that no job of this worker has, past which none is taken",
    )
    cooldown_s: PositiveFloat = Field(
        60.0, description="seconds that all must be within the limits before jobs are taken again"
    )
    sample_s: PositiveFloat = Field(10.0, description="seconds between looks at what is used")


class PolicySettings(BaseSettings):
    """What the operator allows; sizes in MiB, times in seconds."""

    runner: Literal["auto", "docker", "process"] = Field("auto", description="how to run jobs")
    allow_processes: bool = Field(
        default=False, description="allow jobs as plain processes, which have no boundary"
    )
    default_image: str = Field("", description="the image for jobs that name none")
    allowed_images: CommaList = Field(
        default_factory=lambda: ["*"],
        description="globs of the images that jobs may name, by commas",
    )
    allow_builds: bool = Field(
        default=False, description="allow images built here from a project's Dockerfile"
    )
    pull: Literal["missing", "always", "never"] = Field(
        "missing", description="when to fetch an image from its registry"
    )
    network: Literal["bridge", "none"] = Field("bridge", description="what containers may reach")
    allow_metadata: bool = Field(
        default=False,
        description="start containers although they can reach the cloud's metadata addresses",
    )
    extra_mounts: CommaList = Field(
        default_factory=list,
        description="folders of this machine for every job, /here:/there or /here:/there:rw",
    )
    allow_swap: bool = Field(default=False, description="allow jobs to swap")
    allow_install: bool = Field(
        default=True, description="allow projects to install what they require"
    )
    host_packages: bool = Field(
        default=False,
        description="let requirements of plain processes be met by what this machine's Python has",
    )
    keep_caches: bool = Field(
        default=True, description="keep each owner's model caches between jobs"
    )
    secrets_dir: OptionalPath = Field(
        None, description="a folder of secrets for jobs: a file for each, or a folder for an owner"
    )
    cache_mb: PositiveInt = Field(
        20_480,
        description="disk for each of: bundles, saved images, environments, model caches, MiB",
    )


class PaceSettings(BaseSettings):
    """Periods and time limits, in seconds."""

    heartbeat_s: PositiveFloat = Field(30.0, description="seconds between renewals")
    lease_ttl_s: PositiveFloat = Field(120.0, description="seconds that a lease lasts")
    lease_policy: Policy = Field(
        "continue",
        description="what becomes of jobs whose leases cannot be renewed: strict has them gone"
        " before their leases end",
    )
    continue_s: NonNegativeFloat = Field(
        3600.0, description="seconds that they go on past their leases' end, with continue"
    )
    poll_s: PositiveFloat = Field(5.0, description="seconds between looks at the queue, unwoken")
    log_flush_s: PositiveFloat = Field(1.0, description="seconds between log chunks")
    store_patience_s: PositiveFloat = Field(
        300.0, description="seconds that a job waits for a store that is away"
    )
    crash_limit_s: PositiveFloat = Field(
        300.0,
        description="seconds that a worker which ended badly time after time waits before it"
        " starts again, at most",
    )
    sweep: bool = Field(default=True, description="run the sweeper in here too")
    sweep_s: PositiveFloat = Field(10.0, description="seconds between the sweeper's ticks")
    offline_s: PositiveFloat = Field(
        120.0, description="seconds of silence after which the sweeper in here has a worker offline"
    )

    @model_validator(mode="after")
    def _beats_within_a_lease(self) -> Self:
        if self.heartbeat_s * 2 > self.lease_ttl_s:
            raise ValueError("heartbeat_s must be at most half of lease_ttl_s, or leases run out")
        return self

    @property
    def ttl(self) -> timedelta:
        return timedelta(seconds=self.lease_ttl_s)


class SpotSettings(BaseSettings):
    """Notices of preemption, and how the time until it is used; times in seconds."""

    spot: Literal["auto", "aws", "gcp", "azure", "none"] = Field(
        "auto", description="the cloud whose notices are heeded; auto finds out, none asks nobody"
    )
    spot_url: str = Field(
        "", description="its metadata server, if that is not at http://169.254.169.254"
    )
    term_notice_s: PositiveFloat = Field(
        25.0,
        description="seconds from SIGTERM, or from `forge preempt`, until the worker must be gone",
    )
    upload_reserve_s: NonNegativeFloat = Field(
        10.0,
        description="seconds of a notice kept for storing the last checkpoint, at least; half of"
        " it at most",
    )
