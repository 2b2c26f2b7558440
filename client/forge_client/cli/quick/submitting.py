"""`forge submit` without typer: nothing has to be looked up, followed or shown but its id."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge_client.cli.options.job_fields import OPTIONS, changes, kind_of, project_in
from forge_client.cli.quick.answers import backend, form_of
from forge_client.cli.quick.arguments import Declined
from forge_client.cli.show.submitted import ready, show_submitted
from forge_client.errors import ClientError
from forge_client.project.submit import uploaded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forge_client.project.forge_toml import Project
    from forge_client.project.request import Request

# Options of the command itself, and those whose values are checked while typer reads them.
MORE = {"config", "dry_run", "secrets", "from_checkpoint"}
MORE |= {"after", "after_ok", "after_any"}


def submit(given: dict[str, Any], command: Sequence[str] | None) -> None:
    """Answer `forge submit`."""
    folder, form, wait = Path(given.pop("folder", ".")), form_of(given), given.pop("wait", False)
    with backend() as asked:
        project, request = _described(given, folder, command)
        whole = ready(asked.owner, project, [request], folder)
        (job_id,) = asked.submit(uploaded(asked, whole))
        show_submitted(asked, job_id, form, wait=wait)


def _described(
    given: dict[str, Any], folder: Path, command: Sequence[str] | None
) -> tuple[Project, Request]:
    """Return the job that is described, before anything is said of it."""
    if MORE & given.keys():
        raise Declined
    if any(os.environ.get(option.variable) for option in OPTIONS.values() if option.variable):
        raise Declined
    try:
        fields = changes({name: _value(name, text) for name, text in given.items()})
        project = project_in(folder, limit=given.get("limit"), include=given.get("include"))
        request = project.request().changed({**fields, "command": command})
    except (ClientError, ValueError) as error:
        raise Declined from error
    if project.connection.model_dump(exclude_none=True):
        raise Declined
    return project, request


def _value(name: str, text: Any) -> Any:  # noqa: ANN401 - as the option
    kind = kind_of(name)
    return kind(text) if kind in {int, float} else text
