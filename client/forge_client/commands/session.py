"""What every command starts from: the flags before the command, the settings, the backend."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from forge_client import settings
from forge_client.backend import Backend
from forge_client.connection import connect
from forge_client.project import Project
from forge_client.settings import Settings

JobId = Annotated[int, typer.Argument(metavar="JOB", help="The job's id.", min=1)]


@dataclass(frozen=True)
class Flags:
    """The options that stand before the command."""

    database_url: str | None = None
    store_url: str | None = None
    dir: Path | None = None


def settings_of(context: typer.Context, project: Project | None = None) -> Settings:
    """Return the settings, with the forge.toml of this folder unless another's is given."""
    flags: Flags = context.find_object(Flags) or Flags()
    project = project or Project.read(Path())
    return settings.load(vars(flags), project.connection.model_dump(exclude_none=True))


def backend_of(context: typer.Context) -> Backend:
    """Return a backend for what the settings name."""
    return connect(settings_of(context))
