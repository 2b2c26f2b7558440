"""`forge team`: teams of owners; only admins change them."""

from typing import Annotated

import typer
from forge_schema.model.admin import Team, TeamChanges
from forge_schema.model.quantities import counted, names_text

from forge_client.backend import Backend
from forge_client.cli.admin.queues import limits_text, used
from forge_client.cli.options import names
from forge_client.cli.options.command_line import VerbNames
from forge_client.cli.options.selection import SureOption, ask
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format
from forge_client.results.names import joining, require_members

app = typer.Typer(cls=VerbNames, no_args_is_help=True, help="Teams of owners: join, leave, list.")
COLUMNS: list[Column] = [
    ("TEAM", lambda t: t.name),
    ("OWNERS", lambda t: ", ".join(t.owners)),
    ("MOST JOBS", lambda t: t.max_jobs),
    ("MOST GPUS", lambda t: t.max_gpus),
    ("GUARANTEED", lambda t: t.guaranteed_gpus),
    ("USED THIS MONTH", used),
    ("", lambda t: "spent" if t.spent_at else ""),
]
MEMBERS: list[Column] = [
    ("OWNER", lambda m: m.owner),
    ("ROLES", lambda m: ", ".join(m.roles)),
    ("", lambda m: ("by single sign-on" if m.by_issuer else "") if m.is_member else "only sees it"),
    ("WAITING", lambda m: m.waiting),
    ("RUNNING", lambda m: m.running),
    ("GPUS", lambda m: m.gpus),
    ("USED THIS MONTH", used),
]
TeamName = Annotated[
    str, typer.Argument(metavar="TEAM", help="The team's name.", autocompletion=names.teams)
]
Owners = Annotated[list[str], typer.Argument(metavar="OWNER…", help="Owners of jobs.")]


@app.callback()
def teams() -> None:
    """Manage teams. An owner is in one team at most."""


@app.command("list")
def list_teams(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List the teams that you see; `forge queue limit --team` limits one."""
    with backend_of(context) as backend:
        nothing = "you see no team; an admin's `forge team join TEAM OWNER…` makes one"
        output.show(backend.teams(), COLUMNS, form, nothing=nothing)


@app.command()
def show(context: typer.Context, team: TeamName, form: FormatOption = Format.TABLE) -> None:
    """Show a team that you see: its people and their roles, what runs, waits and was used."""
    with backend_of(context) as backend:
        found = backend.team(team)
    output.show_one(found, form, lambda: output.show(found.members, MEMBERS, Format.TABLE))


@app.command()
def join(context: typer.Context, team: TeamName, owners: Owners) -> None:
    """Put owners into a team, which is made if it is new; they leave the team before."""
    with backend_of(context) as backend:
        remark = joining(team, owners, backend.teams())
        _change(backend, team, TeamChanges(join=owners))
    if remark:
        narration.say(remark, "yellow")


@app.command()
def leave(context: typer.Context, team: TeamName, owners: Owners) -> None:
    """Take owners out of a team."""
    with backend_of(context) as backend:
        require_members(backend.team(team), owners)
        _change(backend, team, TeamChanges(leave=owners))


@app.command()
def remove(context: typer.Context, team: TeamName, yes: SureOption = False) -> None:
    """Remove a team. Its owners and their jobs stay; keys see only their own owner's jobs then."""
    with backend_of(context) as backend:
        its = backend.team(team)
        owners = f"; its owners stay: {names_text(its.owners, 5)}" if its.owners else ""
        keys = [key for key in backend.admin.api_keys() if key.team == team and not key.revoked_at]
        see = counted(len(keys), "key or invitation sees", "keys and invitations see")
        lost = f"with the team {team} go its limits ({limits_text(its)})"
        lost += f" and what {see}" if keys else ""
        ask(f"Remove the team {team}?", yes=yes, lost=f"{lost}{owners}")
        backend.admin.remove_team(team)
    narration.say(f"team {team} removed")


def _change(backend: Backend, team: str, changes: TeamChanges) -> None:
    now: Team = backend.admin.change_team(team, changes)
    narration.say(f"team {team}: {', '.join(now.owners) or 'nobody'}")
