"""`forge invite`: lines with which people get a key of their own."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import httpx
import typer
from forge_schema.http_client import tls_context
from forge_schema.model.admin import NotAPerson, invitation_line, people_of
from forge_schema.model.quantities import duration_text
from forge_schema.model.states import Role
from forge_schema.own_authority import fingerprint, offered
from forge_schema.proxies import is_loopback
from forge_schema.service.admin import INVITATION_LASTS
from forge_schema.service.admin import invite as make

from forge_client import running
from forge_client.cli.admin.keys import KeyRole
from forge_client.cli.options import names
from forge_client.cli.options.session import backend_of, settings_of
from forge_client.cli.options.values import FormatOption, lasting
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format
from forge_client.errors import ClientError
from forge_client.settings import Settings

COLUMNS: list[Column] = [("OWNER", lambda one: one["owner"]), ("LINE", lambda one: one["line"])]


def invite(
    context: typer.Context,
    owners: Annotated[
        list[str] | None, typer.Argument(metavar="[OWNER…]", help="Whose jobs will be theirs.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", help="More of them: a line each, OWNER or OWNER TEAM.", dir_okay=False
        ),
    ] = None,
    team: Annotated[
        str | None,
        typer.Option(
            help="Team that they join, and whose jobs they see.", autocompletion=names.teams
        ),
    ] = None,
    role: Annotated[KeyRole, typer.Option(help="What they may do.")] = KeyRole.SUBMITTER,
    expires: Annotated[
        str | None, typer.Option("--expires", help="Lifetime of the line, e.g. 1d. Default: 7d.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option("--server", help="The server's URL for them, if it is another there."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Print a line for each person, with which the person gets a key of their own.

    A line works once, until it expires. It is in the list of keys until then, and can be revoked.
    """
    people = [(owner, team) for owner in owners or []]
    people += [(owner, own or team) for owner, own in (_listed(file) if file else ())]
    if not people:
        raise typer.BadParameter("name somebody, or a file with --file")
    lasts, url = lasting(expires) or INVITATION_LASTS, server or _reached(settings_of(context))
    trust = _trust(url, settings_of(context))
    lines: list[dict[str, str]] = []
    with backend_of(context) as backend:
        for owner, joins in people:
            made = make(backend.admin, owner, Role(role.value), team=joins, lasts=lasts)
            line = invitation_line(url, made.text, trust)
            lines.append({"owner": owner, "key": made.id, "line": line})
            if form is Format.TABLE:
                # At once: what fails for the next person keeps nobody from the line.
                print(line, flush=True)  # noqa: T201 - the data
    if form is not Format.TABLE:
        output.show(lines, COLUMNS, form)
    narration.say(f"each line works once, within {duration_text(lasts.total_seconds())}")
    if is_loopback(urlsplit(url).hostname or ""):
        narration.say(
            "the server's address is this machine's own, so the lines work only here; give --server"
            " the URL under which others reach it"
        )


def _reached(settings: Settings) -> str:
    if url := settings.url or (None if settings.database_url else running.find(settings.dir).url):
        return url
    raise ClientError(
        "no server is known that they could reach",
        hint="name it: --server https://forge.example:8900",
        code="server_not_named",
    )


def _trust(url: str, settings: Settings) -> str:
    """Return the fingerprint of the server's authority, if it has one of its own."""
    if not url.startswith("https:"):
        return ""
    try:
        certificate = offered(url, tls_context(settings.trusted(url)))
    except httpx.HTTPError as error:
        narration.say(f"the lines vouch for no authority of {url}, which does not answer: {error}")
        return ""
    return fingerprint(certificate) if certificate else ""


def _listed(file: Path) -> list[tuple[str, str | None]]:
    try:
        return [(owner, team) for _, owner, team in people_of(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from error
    except NotAPerson as error:
        raise typer.BadParameter(f"{file}, {error.message}: {error.hint}") from error
