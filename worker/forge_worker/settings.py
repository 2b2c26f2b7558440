"""The worker's settings: flags before FORGE_* variables before defaults."""

import os
import secrets
import socket
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

import psutil
from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


def _pairs(value: object) -> object:
    if not isinstance(value, str):
        return value
    pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
    if any(not sign for _, sign, _ in pairs):
        raise ValueError("write labels as name=value,name=value")
    return {name.strip(): text.strip() for name, _, text in pairs}


def default_folder() -> Path:
    """Return where a worker keeps its state unless told otherwise."""
    root = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(root) / "forge-worker"


class WorkerSettings(BaseSettings):
    """Run jobs of a Forge queue on this machine."""

    model_config = SettingsConfigDict(
        env_prefix="FORGE_",
        extra="ignore",
        cli_prog_name="forge-worker",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
    )

    database_url: str = Field(description="the queue's database, postgresql://…")
    store_url: str = Field(description="the object store, s3://bucket/prefix or file:///folder")
    worker_name: str = Field("", description="its name in the queue; made up once if absent")
    worker_dir: Path = Field(default_factory=default_folder, description="its folder for state")
    ephemeral: bool = Field(default=False, description="leave after one job")
    runner: Literal["auto", "docker", "process"] = Field("auto", description="how to run jobs")
    allow_processes: bool = Field(
        default=False, description="allow jobs as plain processes, which have no boundary"
    )
    default_image: str = Field("", description="the image for jobs that name none")
    cpus: PositiveFloat = Field(
        default_factory=lambda: float(psutil.cpu_count() or 1), description="CPUs to lend"
    )
    memory_mb: PositiveInt = Field(
        default_factory=lambda: max(256, (psutil.virtual_memory().total >> 20) - 512),
        description="memory to lend, MiB",
    )
    disk_mb: PositiveInt = Field(102_400, description="disk to lend, MiB")
    max_jobs: PositiveInt = Field(64, description="jobs at once, however small they are")
    labels: Annotated[dict[str, str], NoDecode, BeforeValidator(_pairs)] = Field(
        default_factory=dict, description="labels for jobs to select by, name=value,name=value"
    )
    local: bool = Field(default=False, description="serve jobs of target local")
    price_per_hour: float | None = Field(None, ge=0, description="what this machine costs")
    heartbeat_s: PositiveFloat = Field(30.0, description="seconds between renewals")
    lease_ttl_s: PositiveFloat = Field(120.0, description="seconds that a lease lasts")
    poll_s: PositiveFloat = Field(5.0, description="seconds between looks at the queue, unwoken")
    log_flush_s: PositiveFloat = Field(1.0, description="seconds between log chunks")
    store_patience_s: PositiveFloat = Field(
        300.0, description="seconds that a job waits for a store that is away"
    )
    sweep: bool = Field(default=True, description="run the sweeper in here too")
    sweep_s: PositiveFloat = Field(10.0, description="seconds between sweeps")
    cache_mb: PositiveInt = Field(20_480, description="disk for the bundle cache, MiB")

    @model_validator(mode="after")
    def _beats_within_a_lease(self) -> Self:
        if self.heartbeat_s * 2 > self.lease_ttl_s:
            raise ValueError("heartbeat_s must be at most half of lease_ttl_s, or leases run out")
        return self

    @property
    def ttl(self) -> timedelta:
        return timedelta(seconds=self.lease_ttl_s)

    def name(self) -> str:
        """Return the worker's name; one made up is kept in its folder."""
        if self.worker_name:
            return self.worker_name
        kept = self.worker_dir / "name"
        if not kept.exists() or not kept.read_text(encoding="utf-8").strip():
            kept.write_text(f"{socket.gethostname()}-{secrets.token_hex(3)}\n", encoding="utf-8")
        return kept.read_text(encoding="utf-8").strip()
