"""The starting point of every command: global flags, settings and the backend."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import typer

from forge_client import settings
from forge_client.cli.show import narration
from forge_client.connection import connect
from forge_client.project import FILE
from forge_client.settings import Settings

if TYPE_CHECKING:
    from forge_client.backend import Backend
    from forge_client.project.forge_toml import Project

OPEN = "forge.backend"
TOLD = "forge.told"


@dataclass(frozen=True)
class Flags:
    """The options before the command's name."""

    url: str | None = None
    api_key_file: Path | None = None
    tls_ca: Path | None = None
    database_url: str | None = None
    store_url: str | None = None
    dir: Path | None = None

    @classmethod
    def given(cls, context: typer.Context) -> Self:
        """Return the flags from the command line; the settings read the variables themselves."""
        names = {"folder": "dir"}
        return cls(**{
            names.get(name, name): value or None
            for name, value in context.params.items()
            if names.get(name, name) in cls.__dataclass_fields__ and given(context, name)
        })  # fmt: skip


def given(context: typer.Context, name: str) -> bool:
    """Tell whether a parameter was given on the command line."""
    return getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"


def settings_of(context: typer.Context, project: "Project | None" = None) -> Settings:
    """Return the settings, using the forge.toml of this folder unless another is given."""
    # While a shell completes a word, the options before the command's name are only parsed.
    flags: Flags = context.find_object(Flags) or Flags.given(
        cast("typer.Context", context.find_root())
    )
    loaded = settings.load(vars(flags), _connection(project))
    _ask_about_server(context, loaded)
    _tell_which(context, loaded)
    return loaded


def _ask_about_server(context: typer.Context, loaded: Settings) -> None:
    """Ask once about a server that only the folder names; without a terminal, it is refused."""
    parsing = context.find_root().resilient_parsing or context.resilient_parsing
    if parsing or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if url := loaded.asks_about():
        from forge_client.http import logins  # noqa: PLC0415 - rarely needed

        asked = f"The forge.toml of this folder names the server {url}. Send it your API key?"
        if typer.confirm(asked, err=True):
            logins.trust(url)


def _tell_which(context: typer.Context, loaded: Settings) -> None:
    """Say once which `forge up` a command uses, if there is a choice and nothing makes it."""
    root = context.find_root()
    if root.resilient_parsing or context.resilient_parsing or root.meta.get(TOLD):
        return
    root.meta[TOLD] = True
    if note := loaded.note():
        narration.say(note, "yellow")


def _connection(project: "Project | None") -> dict[str, str]:
    if project is None:
        if not Path(FILE).is_file():
            return {}
        # Most folders have none, and reading one takes much of pydantic.
        from forge_client.project.forge_toml import Project  # noqa: PLC0415

        project = Project.read(Path())
    return project.connection.model_dump(exclude_none=True)


def backend_of(context: typer.Context) -> "Backend":
    """Return a backend for the configured connection."""
    kept: Backend | None = context.meta.pop(OPEN, None)
    return kept or connect(settings_of(context))


def options_backend(context: typer.Context) -> "Backend":
    """Return a backend to read options with. The next `backend_of` returns the same."""
    backend: Backend | None = context.meta.get(OPEN)
    if backend is None:
        backend = context.meta[OPEN] = connect(settings_of(context))
        context.call_on_close(partial(backend.__exit__, None, None, None))
    return backend
