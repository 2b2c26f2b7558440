"""The worker's settings: flags before FORGE_* variables before its profile before defaults."""

import os
import secrets
import socket
from pathlib import Path
from typing import Annotated, Any, Self

import structlog
from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from forge_worker.settings.machine import MachineSettings
from forge_worker.settings.pace import PaceSettings
from forge_worker.settings.policy import PolicySettings, Words
from forge_worker.settings.profiles import defaults_of
from forge_worker.settings.queue import QueueSettings
from forge_worker.settings.spot import SpotSettings

# What a name in the queue may be: the container engine has it in labels, folders are called so.
NAME_LENGTH = 200

log = structlog.get_logger(__name__)


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


class WorkerSettings(SpotSettings, PaceSettings, PolicySettings, MachineSettings, QueueSettings):
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

    worker_name: str = Field("", description="its name in the queue; made up once if absent")
    replace: bool = Field(
        default=False, description="take the place of a worker of this name that is alive"
    )
    worker_dir: Path = Field(
        default_factory=default_folder,
        description="its folder for state",
        json_schema_extra={"default": "~/.local/state/forge-worker"},
    )
    labels: Annotated[dict[str, str], NoDecode, BeforeValidator(_pairs)] = Field(
        default_factory=dict, description="labels for jobs to select by, name=value,name=value"
    )
    tags: Words = Field(
        default_factory=list, description="labels without a value, by commas: each is name=true"
    )
    spool_slots: int = Field(
        64, ge=1, le=10_000, description="ends of jobs that its folder keeps room for, 32 KiB each"
    )
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        None, description="serve metrics for Prometheus at this port; 0 is any"
    )
    metrics_host: str = Field(
        "127.0.0.1", description="the address for them; whoever reaches it may read them"
    )
    ephemeral: bool = Field(default=False, description="leave after one job")
    local: bool = Field(default=False, description="serve jobs of target local")
    price_per_hour: float | None = Field(None, ge=0, description="what this machine costs")
    verbose: bool = Field(default=False, description="log also what is of use only in a search")

    @model_validator(mode="before")
    @classmethod
    def _under_all_that_is_given(cls, given: dict[str, Any]) -> dict[str, Any]:
        return defaults_of(given.get("profile")) | given

    @model_validator(mode="after")
    def _tags_are_labels(self) -> Self:
        self.labels = {**dict.fromkeys(self.tags, "true"), **self.labels}
        return self

    def name(self) -> str:
        """Return the worker's name; one made up is kept in its folder."""
        known = self.known_name()
        if known:
            return known
        name = f"{socket.gethostname()}-{secrets.token_hex(3)}"
        kept = self.worker_dir / "name"
        if kept.exists():
            log.warning("the file of this worker's name is broken; it takes a new one", name=name)
        made = kept.with_name(f"name.{os.getpid()}")
        made.write_text(f"{name}\n", encoding="utf-8")
        made.replace(kept)
        return name

    def known_name(self) -> str:
        """Return the worker's name, or "" where none was made up yet."""
        if self.worker_name:
            return self.worker_name
        try:
            name = (self.worker_dir / "name").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""
        return name if name.isprintable() and len(name) <= NAME_LENGTH else ""
