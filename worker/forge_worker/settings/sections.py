"""Sections of the worker's settings: its machine, the operator's policy, pace and preemption."""

import shlex
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

import psutil
from forge_schema.http_client import server_url
from forge_schema.model.quantities import seconds
from pydantic import (
    BeforeValidator,
    Field,
    IPvAnyAddress,
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


def program_line(text: str) -> list[str]:
    """Split an operator's command line into a program and its arguments, as a shell would.

    Raises:
        ValueError: a quote is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a command line: {error}") from error


def spare_memory_mb(there: int) -> int:
    """Return the memory to offer of so many bytes, MiB: all but what the worker may need."""
    return max(256, (there >> 20) - 512)


Policy = Literal["continue", "strict"]
CommaList = Annotated[list[str], NoDecode, BeforeValidator(split_commas)]
ServerUrls = Annotated[list[str], NoDecode, BeforeValidator(server_urls)]
OptionalPath = Annotated[Path | None, BeforeValidator(lambda text: text or None)]
Percent = Annotated[float, Field(gt=0, le=100)]
Duration = Annotated[PositiveFloat, BeforeValidator(seconds)]


# Deferred: only the whole is read, and what pydantic makes of each part is not used.
class MachineSettings(BaseSettings, defer_build=True):
    """Resources that jobs may use, and limits of the machine; sizes in MiB, times in seconds."""

    profile: Literal["", "benchmark", "test", "light"] = Field(
        "", description="defaults for a kind of use, see below; other settings override it"
    )
    cpus: PositiveFloat = Field(
        default_factory=lambda: float(psutil.cpu_count() or 1),
        description="CPUs to offer",
        json_schema_extra={"default": "all"},
    )
    memory_mb: PositiveInt = Field(
        default_factory=lambda: spare_memory_mb(psutil.virtual_memory().total),
        description="memory to offer, MiB; never more than the machine has",
        json_schema_extra={"default": "all but 512"},
    )
    memory_reserve_mb: NonNegativeInt = Field(
        0, description="start new jobs only while this much memory of the machine is free, MiB"
    )
    disk_mb: PositiveInt = Field(102_400, description="disk to offer, MiB; never more than is free")
    disk_floor_mb: NonNegativeInt = Field(
        1024, description="start new jobs only while --worker-dir has this much free disk, MiB"
    )
    gpus: CommaList = Field(
        default_factory=lambda: ["visible"],
        description=(
            "GPUs to offer: visible (those of CUDA_VISIBLE_DEVICES, if it is set), all, none, or"
            " their UUIDs or numbers, separated by commas"
        ),
    )
    lock_dir: OptionalPath = Field(
        None,
        description="folder in which the workers of a machine lock GPUs; must be the same for all",
    )
    measure: bool = Field(
        default=False,
        description="measure the machine's speed at the first start, as --profile-machine does",
    )
    measure_python: OptionalPath = Field(
        None,
        description="Python whose PyTorch or NumPy measures the machine; by default the worker's",
    )
    max_jobs: PositiveInt = Field(64, description="maximum number of jobs at once")
    max_storing: NonNegativeInt | None = Field(
        None,
        description="jobs that hold only disk while they are stored; by default --max-jobs",
    )
    sandboxes: NonNegativeInt = Field(
        2,
        description="networks prepared beforehand, in which jobs in containers start sooner",
    )
    max_cpu_percent: Percent | None = Field(
        None, description="take no new job while CPU usage of the machine is higher"
    )
    max_memory_percent: Percent | None = Field(
        None, description="take no new job while memory usage of the machine is higher"
    )
    max_gpu_percent: Percent | None = Field(
        None,
        description="take no new job while an offered GPU without its jobs is busier than this",
    )
    cooldown_s: PositiveFloat = Field(
        60.0, description="seconds within all limits before jobs are taken again"
    )
    sample_s: PositiveFloat = Field(10.0, description="seconds between measurements of usage")


class PolicySettings(BaseSettings, defer_build=True):
    """What the operator allows; sizes in MiB, times in seconds."""

    runner: Literal["auto", "docker", "process"] = Field("auto", description="how to run jobs")
    allow_processes: bool = Field(
        default=False, description="allow jobs to run as plain processes, without isolation"
    )
    process_user: str = Field(
        "", description="user of jobs that are processes, a name or a number; empty: the worker's"
    )
    default_image: str = Field("", description="image for jobs that do not name one")
    allowed_images: CommaList = Field(
        default_factory=lambda: ["*"],
        description="globs of images that jobs may use, separated by commas",
    )
    allow_builds: bool = Field(
        default=False, description="allow building images here from a project's Dockerfile"
    )
    pull: Literal["missing", "always", "never"] = Field(
        "missing", description="when to pull an image from its registry"
    )
    network: Literal["bridge", "none"] = Field("bridge", description="network of the containers")
    allow_metadata: bool = Field(
        default=False,
        description="start containers even if they can reach the cloud's metadata addresses",
    )
    gang_network: Literal["host", "ports", "none"] | None = Field(
        None,
        description="network of jobs on several machines: this machine's (host), the containers'"
        " with one published port (ports), or no such jobs",
        json_schema_extra={"default": "host without containers, else none"},
    )
    advertise_address: IPvAnyAddress | None = Field(
        None,
        description="IP address at which the other machines of a gang reach this one",
        json_schema_extra={"default": "the one by which the queue is reached"},
    )
    before_job: str = Field(
        "",
        description="program to run before each job, without a shell; if it fails, the job goes"
        " back at no charge, and the machine is set aside",
    )
    after_job: str = Field(
        "", description="program to run after each job; if it fails, the machine is set aside"
    )
    check_before_job: bool = Field(
        default=False,
        description="check the job's GPUs, the disk and the loopback device before each job",
    )
    gate_limit_s: PositiveFloat = Field(
        60.0, description="seconds that each of these programs may take"
    )
    extra_mounts: CommaList = Field(
        default_factory=list,
        description="folders to mount into every job, /here:/there or /here:/there:rw",
    )
    offer_folders: CommaList = Field(
        default_factory=list,
        description="folders that jobs may have as read-only inputs, /here or NAME=/here",
    )
    allow_swap: bool = Field(default=False, description="allow jobs to swap")
    allow_install: bool = Field(
        default=True, description="allow projects to install their requirements"
    )
    allow_exec: bool = Field(
        default=True,
        description="allow `forge exec`, `ssh` and `port` into jobs here, through a server",
    )
    host_packages: bool = Field(
        default=False,
        description="let this machine's Python packages satisfy requirements of plain processes",
    )
    keep_caches: bool = Field(
        default=True, description="keep each owner's model caches between jobs"
    )
    secrets_dir: OptionalPath = Field(
        None,
        description="folder of secrets for jobs: a file each, or a folder per owner or @TEAM",
    )
    inputs_mb: PositiveInt = Field(
        102_400, description="disk for the inputs of jobs, MiB; those in use stay"
    )
    cache_mb: PositiveInt = Field(
        20_480,
        description="disk for each cache (bundles, saved images, environments, models), MiB",
    )

    @property
    def uses_engine(self) -> bool:
        """Whether jobs may run in containers here."""
        return self.runner in {"auto", "docker"}

    @property
    def uses_processes(self) -> bool:
        """Whether jobs may run as processes here."""
        return self.allow_processes and self.runner in {"auto", "process"}

    @model_validator(mode="after")
    def _programs_are_command_lines(self) -> Self:
        for line in (self.before_job, self.after_job):
            program_line(line)
        return self

    @model_validator(mode="after")
    def _reachable_from_containers(self) -> Self:
        address = self.advertise_address
        unfit = address and (address.version != 4 or address.is_loopback)  # noqa: PLR2004
        if self.gang_network == "ports" and unfit:
            raise ValueError(
                f"containers cannot reach {address}: with --gang-network ports, --advertise-address"
                " must be an IPv4 address of a network"
            )
        return self


class PaceSettings(BaseSettings, defer_build=True):
    """Periods and time limits, in seconds."""

    heartbeat_s: PositiveFloat = Field(30.0, description="seconds between lease renewals")
    lease_ttl_s: PositiveFloat = Field(120.0, description="lifetime of a lease in seconds")
    lease_policy: Policy = Field(
        "continue",
        description="jobs whose leases cannot be renewed continue, or stop in time (strict)",
    )
    continue_s: NonNegativeFloat = Field(
        3600.0,
        description="with continue: seconds that such jobs may run after their leases expire",
    )
    poll_s: PositiveFloat = Field(
        5.0, description="seconds between checks of the queue without a wake-up"
    )
    exit_after_idle: Duration | None = Field(
        None, description="leave after so long without a job, such as 15m"
    )
    on_idle_exit: str = Field(
        "",
        description="program to run then, without a shell, which may stop the machine",
    )
    prefetch_s: NonNegativeFloat = Field(
        30.0,
        description="seconds between looks at what the next job needs, to prepare it; 0 for none",
    )
    log_flush_s: PositiveFloat = Field(1.0, description="seconds between log chunks")
    gang_patience_s: PositiveFloat = Field(
        600.0, description="seconds that a prepared machine of a gang waits for the others"
    )
    store_patience_s: PositiveFloat = Field(
        300.0, description="seconds that a job waits for an unreachable store"
    )
    crash_limit_s: PositiveFloat = Field(
        300.0,
        description="longest pause, in seconds, before a worker that keeps crashing starts again",
    )
    sweep: bool = Field(default=True, description="run a sweeper in this worker")
    sweep_s: PositiveFloat = Field(10.0, description="seconds between the sweeper's ticks")
    offline_s: PositiveFloat = Field(
        120.0,
        description="seconds of silence after which its sweeper considers a worker offline",
    )
    keep_jobs_days: NonNegativeInt = Field(
        0, description="days after its end at which its sweeper removes a job; 0 means never"
    )

    @model_validator(mode="after")
    def _beats_within_a_lease(self) -> Self:
        if self.heartbeat_s * 2 > self.lease_ttl_s:
            raise ValueError("heartbeat_s must be at most half of lease_ttl_s, or leases run out")
        return self

    @model_validator(mode="after")
    def _a_program_for_an_idle_exit(self) -> Self:
        if self.on_idle_exit and self.exit_after_idle is None:
            raise ValueError("--on-idle-exit goes with --exit-after-idle, such as 15m")
        program_line(self.on_idle_exit)
        return self

    @property
    def ttl(self) -> timedelta:
        return timedelta(seconds=self.lease_ttl_s)


class SpotSettings(BaseSettings, defer_build=True):
    """Notices of preemption, and how the time until it is used; times in seconds."""

    spot: Literal["auto", "aws", "gcp", "azure", "none"] = Field(
        "auto",
        description="the cloud whose preemption notices to watch; auto detects it",
    )
    spot_machine: Literal["auto", "yes", "no"] = Field(
        "auto",
        description="whether this is a spot machine; auto asks the cloud",
    )
    spot_url: str = Field("", description="its metadata server, if not http://169.254.169.254")
    term_notice_s: PositiveFloat = Field(
        25.0,
        description="seconds from SIGTERM or `forge preempt` until the worker must be gone",
    )
    upload_reserve_s: NonNegativeFloat = Field(
        10.0,
        description="minimum seconds of a notice for the last checkpoint; never over half of it",
    )
