"""`forge queue`: the queues, and controls over starting jobs."""

import math
import shlex
from typing import Annotated, Any, NamedTuple

import typer
from forge_schema.model.admin import (
    OwnerLimits,
    OwnerSettings,
    Preemption,
    QueueInfo,
    Team,
    TeamChanges,
    TeamMember,
    WhenSpent,
)
from forge_schema.model.quantities import counted, duration_text, seconds

from forge_client.backend import Backend
from forge_client.cli.options import names
from forge_client.cli.options.command_line import VerbNames
from forge_client.cli.options.selection import SureOption, ask
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format
from forge_client.errors import ClientError, InvalidInput
from forge_client.results.names import newcomer, require_queue, unused

app = typer.Typer(cls=VerbNames, no_args_is_help=True, help="Queues: list, pause, limit, set.")
NO_LIMIT = "none"
MOST = 2**31 - 1
AT_ONCE = {"--jobs": "max_jobs", "--gpus": "max_gpus", "--guaranteed-gpus": "guaranteed_gpus"}
LARGEST_AMOUNT = 1e12
# What only owners have, in words.
ONLY_OWNERS = {"weight": "weight", "approve_gpu_hours": "approvals", "approve_cost": "approvals"}


class Amounts(NamedTuple):
    """What an owner may spend, as written on the command line."""

    approve_gpu_hours: str | None
    approve_cost: str | None
    gpu_hours_per_month: str | None
    cost_per_month: str | None

    def checked(self) -> dict[str, float | None]:
        """Return those that were given, None for none; `ClientError` if one is not an amount."""
        given = {name: text for name, text in self._asdict().items() if text is not None}
        return {name: _amount(f"--{name.replace('_', '-')}", text) for name, text in given.items()}


def used(owner: OwnerLimits | Team | TeamMember) -> str:
    parts = []
    if owner.gpu_hours_per_month is not None:
        most = counted(owner.gpu_hours_per_month, "GPU-hour")
        parts.append(f"{owner.used_gpu_hours or 0:,.1f} of {most}")
    if owner.cost_per_month is not None:
        parts.append(f"{owner.used_cost or 0:,.2f} of a cost of {owner.cost_per_month:g}")
    return ", ".join(parts)


QUEUES: list[Column] = [
    ("NAME", lambda q: q.name),
    ("", lambda q: ", ".join([*["paused"] * q.paused, *["preempts"] * (q.preemption != "never")])),
    ("WAITING", lambda q: q.waiting),
    ("RUNNING", lambda q: q.running),
    ("GPUS", lambda q: q.gpus),
    ("MOST JOBS", lambda q: q.max_jobs),
    ("MOST GPUS", lambda q: q.max_gpus),
    ("GUARANTEED", lambda q: q.guaranteed_gpus),
]
OWNERS: list[Column] = [
    ("OWNER", lambda o: o.owner),
    ("MOST JOBS", lambda o: o.max_jobs),
    ("MOST GPUS", lambda o: o.max_gpus),
    ("GUARANTEED", lambda o: o.guaranteed_gpus),
    ("WEIGHT", lambda o: f"{o.weight:g}"),
    ("ASKS ABOVE", lambda o: _spent(o.approve_gpu_hours, o.approve_cost)),
    ("USED THIS MONTH", used),
    ("", lambda o: "spent" if o.spent_at else ""),
]
QueueName = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The queue's name.", autocompletion=names.queues)
]


@app.command("list")
def list_queues(
    context: typer.Context,
    owners: Annotated[
        bool, typer.Option("--owners", help="List limits and budgets of owners instead.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the queues: waiting jobs, running jobs, limits.

    Admins see all jobs and owners, others those that their key sees.
    """
    with backend_of(context) as backend:
        if owners:
            nothing = "nobody has submitted a job or has limits yet"
            output.show(backend.admin.owner_limits(), OWNERS, form, nothing=nothing)
        else:
            nothing = "no queues yet; the first job in one makes it"
            output.show(backend.admin.queues(), QUEUES, form, nothing=nothing)


@app.command()
def pause(context: typer.Context, queue: QueueName) -> None:
    """Stop starting jobs from a queue; of '*', from all that are new. Running jobs continue."""
    with backend_of(context) as backend:
        new = unused(queue, _queues(backend))
        backend.admin.pause(queue)
    narration.say(f"queue {queue} paused{_also(new)}")


@app.command()
def resume(context: typer.Context, queue: QueueName) -> None:
    """Start jobs from a paused queue again."""
    with backend_of(context) as backend:
        require_queue(queue, _queues(backend))
        backend.admin.pause(queue, paused=False)
    narration.say(f"queue {queue} resumed")


@app.command()
def remove(context: typer.Context, queue: QueueName, yes: SureOption = False) -> None:
    """Remove a queue that no job is in, as one that a typo made. A later job makes it again."""
    with backend_of(context) as backend:
        queues = {row.name: row for row in backend.admin.queues()}
        require_queue(queue, [*queues])
        lost = f"its settings go: {_limits(queues[queue])}"
        ask(f"Remove the queue {queue}?", yes=yes, lost=lost)
        backend.admin.remove_queue(queue)
    narration.say(f"queue {queue} removed")


@app.command("set")
def set_queue(
    context: typer.Context,
    queue: QueueName,
    preemption: Annotated[
        Preemption | None,
        typer.Option(help="Whether running jobs leave for waiting ones of a higher priority."),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option("--preempt-after", help="How long a job may run before that, e.g. 10m."),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--most-preempted", help="Maximum number of jobs that leave at once.", min=1, max=10_000
        ),
    ] = None,
) -> None:
    """Set whether jobs of a higher priority displace running ones. Omitted settings stay."""
    given = {
        "preemption": preemption,
        "preempts_after_s": None if after is None else _age(after),
        "most_preempted": most,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    if not changed:
        raise InvalidInput("there is nothing to change", "as in --preemption higher-priority")
    with backend_of(context) as backend:
        backend.admin.change_queue(queue, changed)
        now = next(row for row in backend.admin.queues() if row.name == queue)
    narration.say(f"queue {queue}: {_preemption(now)}")


def _age(text: str) -> int:
    try:
        return math.ceil(seconds(text))
    except ValueError as error:
        raise InvalidInput(f"--preempt-after: {error}") from error


def _preemption(queue: QueueInfo) -> str:
    if queue.preemption == "never":
        return "running jobs stay"
    age = duration_text(queue.preempts_after_s)
    return (
        f"jobs that have run for {age} leave for those of a higher priority,"
        f" at most {queue.most_preempted} at once"
    )


@app.command()
def limit(
    context: typer.Context,
    queue: Annotated[
        str | None, typer.Argument(help="The queue to limit.", autocompletion=names.queues)
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Owner to limit instead of a queue.")] = None,
    team: Annotated[
        str | None,
        typer.Option(help="Team to limit, all its owners together.", autocompletion=names.teams),
    ] = None,
    jobs: Annotated[str | None, typer.Option(help="Maximum running jobs, or none.")] = None,
    gpus: Annotated[str | None, typer.Option(help="Maximum GPUs in use, or none.")] = None,
    guaranteed_gpus: Annotated[
        str | None,
        typer.Option(help="GPUs that jobs of others have to leave once they are needed, or none."),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(
            help="Weight of an owner's share; 2 gets twice as much as 1.", min=0.001, max=1000
        ),
    ] = None,
    approve_gpu_hours: Annotated[
        str | None,
        typer.Option(help="An owner's requests above these GPU-hours wait for approval, or none."),
    ] = None,
    approve_cost: Annotated[
        str | None,
        typer.Option(help="An owner's requests above this cost wait for approval, or none."),
    ] = None,
    gpu_hours_per_month: Annotated[
        str | None, typer.Option(help="GPU-hours of an owner or team in a month, or none.")
    ] = None,
    cost_per_month: Annotated[
        str | None, typer.Option(help="Cost of the jobs of an owner or team in a month, or none.")
    ] = None,
    when_spent: Annotated[
        WhenSpent | None,
        typer.Option(help="What happens once a month's budget is spent; at first hold."),
    ] = None,
) -> None:
    """Limit how much of a queue, an owner or a team runs at once, or in a month.

    Or guarantee GPUs to it. Omitted settings stay.
    """
    amounts = Amounts(approve_gpu_hours, approve_cost, gpu_hours_per_month, cost_per_month)
    of_owner = {"weight": weight, "when_spent": when_spent}
    spending = amounts.checked() | {k: v for k, v in of_owner.items() if v is not None}
    given = {"--jobs": jobs, "--gpus": gpus, "--guaranteed-gpus": guaranteed_gpus}
    at_once = {
        AT_ONCE[name]: _count(name, text) for name, text in given.items() if text is not None
    }
    _check(queue, owner, team, at_once, spending)
    with backend_of(context) as backend:
        if owner is not None:
            _limit_owner(backend, owner, at_once | spending)
        elif team is not None:
            _limit_team(backend, team, at_once | spending)
        else:
            _limit_queue(backend, str(queue), at_once)


def _limit_queue(backend: Backend, name: str, given: dict[str, int | None]) -> None:
    new = unused(name, _queues(backend))
    backend.admin.change_queue(name, given)
    now = next(row for row in backend.admin.queues() if row.name == name)
    narration.say(f"queue {name}: {_limits(now)}{_also(new)}")


def _limit_owner(backend: Backend, owner: str, given: dict[str, Any]) -> None:
    listed = backend.admin.owner_limits()
    known = next((row for row in listed if row.owner == owner), OwnerSettings())
    kept = {name: getattr(known, name) for name in ("max_jobs", "max_gpus", "weight")}
    settings = OwnerSettings(**{**kept, **given})
    backend.admin.limit_owner(owner, settings)
    now = known.model_copy(update=settings.model_dump(exclude_unset=True))
    above = _spent(now.approve_gpu_hours, now.approve_cost)
    narration.say(
        f"owner {owner}: {_limits(now)}, weight {now.weight:g}"
        + (f", approval above {above}" if above else "")
        + _budget(known, now)
        + _also(newcomer(owner, [row.owner for row in listed]))
    )


def _limit_team(backend: Backend, team: str, given: dict[str, Any]) -> None:
    before = next((row for row in backend.teams() if row.name == team), None)
    if before is None:
        raise ClientError(
            f"there is no team {team!r}",
            hint=f"`forge team join {shlex.quote(team)} OWNER…` makes one",
            code="team_not_found",
        )
    now = backend.admin.change_team(team, TeamChanges(**given))
    narration.say(f"team {team}: {_limits(now)}{_budget(before, now)}")


def limits_text(of: Team) -> str:
    """Return the limits and the budget of a team in words."""
    return f"{_limits(of)}{_budget(of, of)}"


def _budget(
    before: OwnerSettings | OwnerLimits | Team, now: OwnerSettings | OwnerLimits | Team
) -> str:
    """Return the month's budget in words; what follows holds for GPU-hours and cost alike."""
    if not (budget := _spent(now.gpu_hours_per_month, now.cost_per_month)):
        return ""
    had = _spent(before.gpu_hours_per_month, before.cost_per_month)
    was = f" ({before.when_spent} before)" if had and before.when_spent != now.when_spent else ""
    return f", {budget} a month, then {now.when_spent}{was}"


def _check(
    queue: str | None,
    owner: str | None,
    team: str | None,
    at_once: dict[str, int | None],
    of_owner: dict[str, Any],
) -> None:
    if [queue, owner, team].count(None) != 2:  # noqa: PLR2004 - all but one
        raise InvalidInput(
            "name a queue, an owner or a team", "as in `forge queue limit night --gpus 8`"
        )
    if not at_once and not of_owner:
        raise InvalidInput("there is nothing to change", "give --jobs or --gpus a number, or none")
    what = next((text for name, text in ONLY_OWNERS.items() if name in of_owner), None)
    if team is not None and what is not None:
        raise InvalidInput(f"a team has no {what}", "name an owner with --owner")
    if of_owner and queue is not None:
        raise InvalidInput(f"a queue has no {what or 'budget'}", "name an owner with --owner")


def _count(option: str, text: str) -> int | None:
    if text == NO_LIMIT:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) > MOST:
        raise InvalidInput(f"{option} {text!r} is not a limit", f"write a number, or {NO_LIMIT}")
    return int(text)


def _amount(option: str, text: str) -> float | None:
    if text == NO_LIMIT:
        return None
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 <= amount <= LARGEST_AMOUNT:
        raise InvalidInput(f"{option} {text!r} is not an amount", f"write a number, or {NO_LIMIT}")
    return amount


def _spent(gpu_hours: float | None, cost: float | None) -> str:
    hours = [] if gpu_hours is None else [counted(gpu_hours, "GPU-hour")]
    return ", ".join([*hours, *([] if cost is None else [f"a cost of {cost:g}"])])


def _queues(backend: Backend) -> list[str]:
    return [row.name for row in backend.admin.queues()]


def _also(remark: str) -> str:
    return f"; {remark}" if remark else ""


def _limits(of: QueueInfo | OwnerLimits | OwnerSettings | Team) -> str:
    limits = f"{_at_most(of.max_jobs, 'job')} and {_at_most(of.max_gpus, 'GPU')} at once"
    if of.guaranteed_gpus is None:
        return limits
    return f"{limits}, {counted(of.guaranteed_gpus, 'GPU')} guaranteed"


def _at_most(limit: int | None, what: str) -> str:
    if limit is None:
        return f"any number of {what}s"
    return f"at most {counted(limit, what)}"
