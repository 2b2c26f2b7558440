"""The worker's settings: flags before FORGE_* variables before defaults."""

import os
import secrets
import socket
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Self

from forge_schema.errors import ForgeError
from forge_schema.tokens import TokenKind, parse
from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    PositiveFloat,
    SecretStr,
    model_validator,
)
from pydantic_settings import NoDecode, SettingsConfigDict

from forge_worker.machine_settings import MachineSettings
from forge_worker.policy_settings import PolicySettings, Words
from forge_worker.server_url import urls

HOW = "give --url and --token, or --database-url and --store-url"


class TokenUnusable(ForgeError):
    """The file of the worker's token cannot be read, or holds none."""

    code = "token_unusable"


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


class WorkerSettings(PolicySettings, MachineSettings):
    """Run jobs of a Forge queue on this machine."""

    model_config = SettingsConfigDict(
        env_prefix="FORGE_",
        extra="ignore",
        cli_prog_name="forge-worker",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
    )

    url: Annotated[list[str], NoDecode, BeforeValidator(urls)] = Field(
        default_factory=list,
        description="a forge-server, https://…; several: the first is preferred",
    )
    token: SecretStr | None = Field(None, description="the worker's token, which an admin made")
    token_file: Annotated[Path | None, BeforeValidator(lambda said: said or None)] = Field(
        None, description="a file with the token; read again when the token is refused"
    )
    tls_ca: Annotated[Path | None, BeforeValidator(lambda said: said or None)] = Field(
        None, description="certificates to trust besides the usual ones, PEM"
    )
    insecure_skip_verify: bool = Field(
        default=False, description="check no certificates; for development alone"
    )
    reconnect_limit_s: PositiveFloat = Field(
        15.0, description="seconds that a server which does not answer is left alone, at most"
    )
    database_url: str = Field("", description="instead: the queue's database, postgresql://…")
    store_url: str = Field(
        "", description="and the object store, s3://bucket/prefix or file:///folder"
    )
    worker_name: str = Field("", description="its name in the queue; made up once if absent")
    verbose: bool = Field(default=False, description="log also what is of use only in a search")
    status: bool = Field(default=False, description="print what this worker sees and does; leave")
    json_output: bool = Field(
        default=False,
        validation_alias=AliasChoices("json", "FORGE_JSON"),
        description="with --status: as JSON",
    )
    recover: bool = Field(
        default=False, description="clear what a worker that was killed left behind; leave"
    )
    reset_state: bool = Field(
        default=False, description="as --recover, and forget its caches and name too; leave"
    )
    worker_dir: Path = Field(default_factory=default_folder, description="its folder for state")
    ephemeral: bool = Field(default=False, description="leave after one job")
    labels: Annotated[dict[str, str], NoDecode, BeforeValidator(_pairs)] = Field(
        default_factory=dict, description="labels for jobs to select by, name=value,name=value"
    )
    tags: Words = Field(
        default_factory=list, description="labels without a value, by commas: each is name=true"
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

    @model_validator(mode="after")
    def _one_way_to_the_queue(self) -> Self:
        if self.url and self.database_url:
            raise ValueError(f"{HOW}, not both: a URL and a database are named")
        if not self.url and not (self.database_url and self.store_url):
            missing = "--store-url" if self.database_url else "the queue"
            raise ValueError(f"{missing} is not named: {HOW}")
        return self

    @model_validator(mode="after")
    def _token_for_a_url(self) -> Self:
        given = self.token is not None and self.token.get_secret_value() != ""
        if not self.url:
            return self
        if given and self.token_file:
            raise ValueError("give --token or --token-file, not both")
        if not given and not self.token_file:
            raise ValueError("--url needs --token or --token-file: an admin makes a token")
        try:
            self.worker_token()
        except ForgeError as error:
            raise ValueError(f"{error.message} ({error.hint})") from error
        return self

    @model_validator(mode="after")
    def _beats_within_a_lease(self) -> Self:
        if self.heartbeat_s * 2 > self.lease_ttl_s:
            raise ValueError("heartbeat_s must be at most half of lease_ttl_s, or leases run out")
        return self

    @property
    def ttl(self) -> timedelta:
        return timedelta(seconds=self.lease_ttl_s)

    def worker_token(self) -> str:
        """Return the worker's token, from its file as that is now.

        Raises:
            TokenUnusable: there is none to be read.
            TokenMalformed: it is none, or not whole.
        """
        if self.token_file is None:
            text = "" if self.token is None else self.token.get_secret_value().strip()
        else:
            text = _read(self.token_file)
        parse(text, TokenKind.WORKER)
        return text

    def name(self) -> str:
        """Return the worker's name; one made up is kept in its folder."""
        if self.worker_name:
            return self.worker_name
        kept = self.worker_dir / "name"
        if not kept.exists() or not kept.read_text(encoding="utf-8").strip():
            kept.write_text(f"{socket.gethostname()}-{secrets.token_hex(3)}\n", encoding="utf-8")
        return kept.read_text(encoding="utf-8").strip()


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise TokenUnusable(
            f"the token's file {file} cannot be read: {why}", hint="it holds the token and no more"
        ) from error
