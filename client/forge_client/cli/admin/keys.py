"""`forge key` and `forge invite`: API keys, and lines with which people get one of their own."""

import sys
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from forge_schema.model.admin import (
    ApiKey,
    NotAPerson,
    Team,
    invitation_line,
    open_invitations,
    people_of,
)
from forge_schema.model.quantities import duration_text, span_text
from forge_schema.model.states import Role
from forge_schema.proxies import is_loopback
from forge_schema.service.admin import INVITATION_LASTS
from forge_schema.service.admin import invite as make

from forge_client.cli.options import names
from forge_client.cli.options.command_line import VerbNames
from forge_client.cli.options.selection import SureOption, ask
from forge_client.cli.options.session import backend_of, settings_of
from forge_client.cli.options.values import (
    Expires,
    FormatOption,
    ServerOption,
    lasting,
    read_public_key,
)
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, ago
from forge_client.connection import reached, vouched
from forge_client.results.names import joining

app = typer.Typer(cls=VerbNames, no_args_is_help=True, help="API keys, for admins.")
INVITATIONS: list[Column] = [("OWNER", lambda one: one["owner"]), ("LINE", lambda one: one["line"])]


class KeyRole(StrEnum):
    """The rights of a key: everything, submit and read its owner's jobs, or only read them."""

    ADMIN = "admin"
    SUBMITTER = "submitter"
    VIEWER = "viewer"


def _state(key: ApiKey) -> str:
    if key.revoked_at:
        return f"revoked {ago(key.revoked_at)}"
    invited = "invitation, " * key.invitation
    return f"{invited}expires {ago(key.expires_at)}" if key.expires_at else ""


COLUMNS: list[Column] = [
    ("ID", lambda k: k.id),
    ("NAME", lambda k: k.name),
    ("SESSION OF", lambda k: k.acts_for or ""),
    ("OWNER", lambda k: k.owner),
    ("ROLE", lambda k: k.role),
    ("SEES", lambda k: "everyone" if k.everyone else k.team or ""),
    ("SIGNED", lambda k: "yes" if k.signed else ""),
    ("CREATED", lambda k: ago(k.created_at)),
    ("LAST USED", lambda k: ago(k.last_used_at)),
    ("STATE", _state),
]
DROP = ("SESSION OF", "SIGNED", "CREATED", "NAME", "SEES")
KeyId = Annotated[
    str,
    typer.Argument(metavar="KEY", help="The key's id, as in the list.", autocompletion=names.keys),
]


@app.callback()
def keys() -> None:
    """Manage API keys."""


@app.command("list")
def list_keys(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List the API keys and the sessions of browsers, the newest first."""
    with backend_of(context) as backend:
        nothing = "no API keys yet; `forge invite OWNER…` has people make theirs"
        output.show(backend.admin.api_keys(), COLUMNS, form, DROP, nothing=nothing)


@app.command()
def create(
    context: typer.Context,
    owner: Annotated[str, typer.Option(help="Owner whose jobs it may use.")],
    role: Annotated[KeyRole, typer.Option(help="Permissions of the key.")] = KeyRole.SUBMITTER,
    name: Annotated[str, typer.Option(help="Name shown in the list.")] = "",
    expires: Expires = None,
    public_key_file: Annotated[
        Path | None, typer.Option(help="Ed25519 public key; every request must then be signed.")
    ] = None,
    team: Annotated[
        str | None, typer.Option(help="Team whose jobs it sees, too.", autocompletion=names.teams)
    ] = None,
    everyone: Annotated[
        bool, typer.Option("--everyone", help="Let it see all owners' jobs, and change none.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Create an API key. It is shown once.

    With `--team` or `--everyone` it sees the jobs of others too, and changes only its owner's.
    """
    lasts = lasting(expires)
    public_key = read_public_key(public_key_file) if public_key_file else None
    with backend_of(context) as backend:
        made = backend.admin.create_key(
            owner, role.value, name=name, lasts=lasts, public_key=public_key, team=team,
            everyone=everyone or None,
        )  # fmt: skip
    sees = f", which sees {'everyone' if everyone else f'the team {team}'}" * bool(everyone or team)
    narration.say(f"API key {made.id} of {owner} with the role {role.value}{sees}{_until(lasts)}")
    narration.say("save it now: it is not stored and cannot be shown again", "dim")
    output.show_one({"id": made.id, "key": made.text}, form, lambda: print(made.text))  # noqa: T201 - the data


@app.command()
def rotate(context: typer.Context, key: KeyId, form: FormatOption = Format.TABLE) -> None:
    """Replace a key's secret and print the new key. The old one stops working."""
    with backend_of(context) as backend:
        text = backend.admin.rotate_key(key)
    narration.say(f"API key {key} has a new secret; the old one no longer works")
    output.show_one({"id": key, "key": text}, form, lambda: print(text))  # noqa: T201 - the data


@app.command()
def revoke(context: typer.Context, key: KeyId, yes: SureOption = False) -> None:
    """Revoke a key permanently, or end a session; with oidc:PERSON, all sessions of a person."""
    with backend_of(context) as backend:
        known = backend.admin.api_keys()
        rows = [row for row in known if key in {row.id, row.acts_for}]
        if rows or ":" in key:
            of = f" of {rows[0].owner}, with the role {rows[0].role}," if rows else ""
            lost = f"what uses the key {key}{of} is refused from then on"
            ask(f"Revoke the key {key}?", yes=yes, lost=lost)
        backend.admin.revoke_key(key)
    narration.say(f"API key {key} revoked")
    others = (row for row in known if row.id != key)
    owner = rows[0].owner if rows and not rows[0].acts_for else ""
    for still in open_invitations(others, owner, datetime.now(UTC)):
        again = f"{owner} can still accept another invitation"
        narration.say(f"{again}: `forge key revoke {still}` ends it", "yellow")


def _until(lasts: timedelta | None) -> str:
    return f", for {duration_text(lasts.total_seconds())}" if lasts else ""


def invite(
    context: typer.Context,
    owners: Annotated[
        list[str] | None, typer.Argument(metavar="[OWNER…]", help="Whose jobs will be theirs.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            help="More of them: a line each, OWNER or OWNER TEAM.",
            exists=True,
            dir_okay=False,
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
    server: ServerOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Print a line for each person, with which the person gets a key of their own.

    A line works once, until it expires. It is in the list of keys until then, and can be revoked.
    """
    people = [(owner, team) for owner in owners or []]
    people += [(owner, own or team) for owner, own in (_listed(file) if file else ())]
    if not people:
        raise typer.BadParameter("name somebody, or a file with --file")
    lasts, url = lasting(expires) or INVITATION_LASTS, server or reached(settings_of(context))
    trust = vouched(url, settings_of(context), narration.say)
    lines: list[dict[str, str]] = []
    with backend_of(context) as backend:
        teams = [*backend.teams()] if any(joins for _, joins in people) else []
        for owner, joins in people:
            made = make(backend.admin, owner, Role(role.value), team=joins, lasts=lasts)
            if joins:
                is_new = joins not in {known.name for known in teams}
                new = f"the team {joins} is new" if is_new else ""
                if remark := joining(joins, [owner], teams) or new:
                    narration.say(remark)
                teams += [Team(name=joins)] if is_new else []
            line = invitation_line(url, made.text, trust)
            lines.append({"owner": owner, "key": made.id, "line": line})
            if form is Format.TABLE:
                # Beside its line; in a file they are in the order of the people.
                if sys.stdout.isatty():
                    narration.say(f"for {owner}:")
                # At once: what fails for the next person keeps nobody from the line.
                print(line, flush=True)  # noqa: T201 - the data
    if form is not Format.TABLE:
        output.show(lines, INVITATIONS, form)
    narration.say(f"each line works once, within {span_text(lasts.total_seconds())}")
    if is_loopback(urlsplit(url).hostname or ""):
        narration.say(
            "the server's address is this machine's own, so the lines work only here; give --server"
            " the URL under which others reach it"
        )


def _listed(file: Path) -> list[tuple[str, str | None]]:
    try:
        return [(owner, team) for _, owner, team in people_of(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from error
    except NotAPerson as error:
        raise typer.BadParameter(f"{file}, {error.message}: {error.hint}") from error
