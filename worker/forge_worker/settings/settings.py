"""The worker's settings: flags before FORGE_* variables before its profile before defaults."""

import os
import secrets
import socket
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

import psutil
import structlog
from forge_schema.access.names import check_worker
from forge_schema.access.tokens import TokenKind, parse
from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import NAME_LENGTH, is_name
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveFloat,
    SecretStr,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from forge_worker import linux
from forge_worker.settings.profiles import defaults_of
from forge_worker.settings.sections import (
    CommaList,
    MachineSettings,
    OptionalPath,
    PaceSettings,
    PolicySettings,
    ServerUrls,
    SpotSettings,
    spare_memory_mb,
)

HOW = "give --url and --token, or --database-url and --store-url"

log = structlog.get_logger(__name__)


def _worker_name(name: str) -> str:
    if name:
        check_worker(name)
    return name


class ActSettings(BaseSettings, defer_build=True):
    """Commands that run once instead of the worker."""

    status: bool = Field(
        default=False, description="print what this worker sees and does, and exit"
    )
    json_output: bool = Field(
        default=False,
        validation_alias="json",
        description="with --status or --profile-machine: print JSON",
    )
    profile_machine: bool = Field(
        default=False,
        description="measure this machine's speed, keep the result in --worker-dir, and exit",
    )
    recover: bool = Field(default=False, description="clean up after a killed worker, and exit")
    reset_state: bool = Field(
        default=False, description="as --recover, and also delete its caches and name"
    )

    @property
    def acts(self) -> bool:
        """Whether one of these commands was requested."""
        return self.status or self.profile_machine or self.recover or self.reset_state


class TokenUnusable(ForgeError):
    """The worker's token file cannot be read, or contains no token."""


class QueueAccessSettings(ActSettings):
    """The connection to the queue; commands such as `--status` work without it."""

    url: ServerUrls = Field(
        default_factory=list,
        description="a forge-server, https://…; separate several by commas, preferred one first",
    )
    token: SecretStr | None = Field(None, description="the worker's token, created by an admin")
    token_file: OptionalPath = Field(
        None, description="file with the token, read again if it is refused; or a pipe"
    )
    signing_key_file: OptionalPath = Field(
        None, description="Ed25519 key that signs all requests, if the server requires it"
    )
    tls_ca: OptionalPath = Field(None, description="additional certificates to trust (PEM)")
    insecure_skip_verify: bool = Field(
        default=False, description="do not verify certificates; for development only"
    )
    reconnect_limit_s: PositiveFloat = Field(
        15.0,
        description="longest pause, in seconds, before retrying an unreachable server or database",
    )
    database_url: str = Field(
        "", description="instead of --url: the queue's database, postgresql://…"
    )
    prepare: bool = Field(
        default=True,
        description="use prepared statements; turn off behind a transaction-mode pooler",
    )
    store_url: str = Field(
        "",
        description="with --database-url: the object store, s3://bucket/prefix or file:///folder",
    )
    exec_url: ServerUrls = Field(
        default_factory=list,
        description="with --database-url: the forge-server of `forge exec`, `ssh` and `port`",
    )

    @property
    def queue_is_named(self) -> bool:
        return bool(self.url or (self.database_url and self.store_url))

    @model_validator(mode="after")
    def _one_way_to_the_queue(self) -> Self:
        if self.url and self.database_url:
            raise ValueError(f"both a URL and a database are given; {HOW}")
        works = self.queue_is_named and not self.acts
        if self.json_output and not (self.status or self.profile_machine or works):
            raise ValueError("--json goes with --status or --profile-machine")
        if not self.queue_is_named and not self.acts:
            if self.database_url:
                raise ValueError(f"--store-url is missing: {HOW}")
            raise ValueError(
                f"no queue is given, and no `forge up` is running here: start one, or {HOW}"
            )
        return self

    @model_validator(mode="after")
    def _token_for_a_url(self) -> Self:
        given = self.token is not None and self.token.get_secret_value() != ""
        if not self.url or (self.acts and not given and not self.token_file):
            return self
        if given and self.token_file:
            raise ValueError("give --token or --token-file, not both")
        if not given and not self.token_file:
            raise ValueError("--url needs --token or --token-file; ask an admin for a token")
        try:
            self.worker_token()
        except ForgeError as error:
            raise ValueError(f"{error.message} ({error.hint})") from error
        return self

    def worker_token(self) -> str:
        """Return the worker's token, reading its file again if there is one.

        Raises:
            TokenUnusable: the file cannot be read.
            TokenMalformed: it is not a token, or is incomplete.
        """
        if self.token_file is None:
            text = "" if self.token is None else self.token.get_secret_value().strip()
        else:
            text = _read(self.token_file)
        parse(text, TokenKind.WORKER)
        return text


def _read(file: Path) -> str:
    return _read_once(file) if file.is_fifo() else _text(file)


@cache
def _read_once(pipe: Path) -> str:
    """Return what comes out of a pipe, which nobody can read a second time."""
    return _text(pipe)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise TokenUnusable(
            f"the token file {file} cannot be read: {why}", hint="it must contain only the token"
        ) from error


def _pairs(value: object) -> object:
    if not isinstance(value, str):
        return value
    pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
    if any(not sign for _, sign, _ in pairs):
        raise ValueError("write labels as name=value,name=value")
    return {name.strip(): text.strip() for name, _, text in pairs}


def default_folder() -> Path:
    """Return the default folder for a worker's state."""
    root = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(root) / "forge-worker"


class WorkerSettings(
    SpotSettings, PaceSettings, PolicySettings, MachineSettings, QueueAccessSettings
):
    """Run jobs of a Forge queue on this machine."""

    model_config = SettingsConfigDict(
        env_prefix="FORGE_",
        env_prefix_target="all",
        extra="ignore",
        cli_prog_name="forge-worker",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_exit_on_error=False,
    )

    worker_name: Annotated[str, AfterValidator(_worker_name)] = Field(
        "", description="its name in the queue; by default one is generated and stored"
    )
    replace: bool = Field(
        default=False, description="take over from a live worker of the same name"
    )
    worker_dir: Path = Field(
        default_factory=default_folder,
        description="folder for its state",
        json_schema_extra={"default": "~/.local/state/forge-worker"},
    )
    labels: Annotated[dict[str, str], NoDecode, BeforeValidator(_pairs)] = Field(
        default_factory=dict, description="labels that jobs can require, name=value,name=value"
    )
    tags: CommaList = Field(
        default_factory=list,
        description="labels without a value, separated by commas; each means name=true",
    )
    spool_slots: int = Field(
        64,
        ge=1,
        le=10_000,
        description="number of undelivered job results to reserve disk for, 32 KiB each",
    )
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        None, description="serve Prometheus metrics on this port; 0 picks a free one"
    )
    metrics_host: str = Field(
        "127.0.0.1",
        description="address to serve metrics on; anyone who can reach it can read them",
    )
    ephemeral: bool = Field(default=False, description="exit after one job")
    local: bool = Field(default=False, description="accept jobs with target local")
    price_per_hour: float | None = Field(None, ge=0, description="cost of this machine per hour")
    verbose: bool = Field(default=False, description="log details that help with debugging")

    @model_validator(mode="before")
    @classmethod
    def _under_all_that_is_given(cls, given: dict[str, Any]) -> dict[str, Any]:
        return defaults_of(given.get("profile")) | given

    @model_validator(mode="after")
    def _tags_are_labels(self) -> Self:
        self.labels = {**dict.fromkeys(self.tags, "true"), **self.labels}
        return self

    def name(self) -> str:
        """Return the worker's name; a generated one is stored in its folder."""
        known = self.known_name()
        if known:
            return known
        name = f"{socket.gethostname()}-{secrets.token_hex(3)}"
        kept = self.worker_dir / "name"
        if kept.exists():
            log.warning("name_file_broken", note="the worker takes a new name", name=name)
        made = kept.with_name(f"name.{os.getpid()}")
        made.write_text(f"{name}\n", encoding="utf-8")
        made.replace(kept)
        return name

    def known_name(self) -> str:
        """Return the worker's name, or "" if none has been generated yet."""
        if self.worker_name:
            return self.worker_name
        try:
            name = (self.worker_dir / "name").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""
        return name if is_name(name) and len(name) <= NAME_LENGTH else ""


def clamp_to_machine(settings: WorkerSettings, *, inside: bool) -> WorkerSettings:
    """Limit the configured memory to what the machine has, and the disk to what is free.

    More CPUs than the machine has only slow jobs down, so they are logged but allowed. `inside` is
    whether jobs have no more than this process has, which may be less than the machine.
    """
    memory, cpus = _there(inside=inside)
    given = settings.model_fields_set
    limits = {
        "memory_mb": memory >> 20,
        "disk_mb": max(1, psutil.disk_usage(str(settings.worker_dir)).free >> 20),
    }
    for name, mb in limits.items():
        if name in given and getattr(settings, name) > mb:
            log.warning("resources_clamped", setting=name, there=mb)
    if settings.cpus > cpus and "cpus" in given:
        log.warning("cpus_overcommitted", lent=settings.cpus, there=cpus)
    if "memory_mb" not in given:
        limits["memory_mb"] = spare_memory_mb(memory)
    clamped = {name: min(getattr(settings, name), mb) for name, mb in limits.items()}
    lent = settings.cpus if "cpus" in given else min(settings.cpus, cpus)
    return settings.model_copy(update={**clamped, "cpus": lent})


def _there(*, inside: bool) -> tuple[int, float]:
    """Return the bytes of memory and the CPUs that jobs may have in all."""
    memory, cpus = psutil.virtual_memory().total, float(psutil.cpu_count() or 1)
    if not inside:
        return memory, cpus
    # Many jobs need a whole CPU, and less of one only slows them down.
    return int(min(memory, linux.memory_limit())), max(1.0, min(cpus, linux.cpu_limit()))
