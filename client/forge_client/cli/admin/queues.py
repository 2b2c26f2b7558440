"""`forge queue`: the queues, and controls over starting jobs."""

import math
from typing import Annotated, NamedTuple

import typer
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.quantities import counted

from forge_client.backend import Backend
from forge_client.cli.options import completion
from forge_client.cli.options.command_line import VerbNames
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format
from forge_client.errors import ClientError

app = typer.Typer(cls=VerbNames, no_args_is_help=True, help="Queues: list, pause, limit.")
NO_LIMIT = "none"
MOST = 2**31 - 1
LARGEST_AMOUNT = 1e12


class Asks(NamedTuple):
    """What an owner may spend a request without approval, as written on the command line."""

    gpu_hours: str | None
    cost: str | None


QUEUES: list[Column] = [
    ("NAME", lambda q: q.name),
    ("", lambda q: "paused" if q.paused else ""),
    ("WAITING", lambda q: q.waiting),
    ("RUNNING", lambda q: _of(q.running, q.max_jobs)),
    ("GPUS", lambda q: _of(q.gpus, q.max_gpus)),
]
OWNERS: list[Column] = [
    ("OWNER", lambda o: o.owner),
    ("MOST JOBS", lambda o: o.max_jobs),
    ("MOST GPUS", lambda o: o.max_gpus),
    ("WEIGHT", lambda o: f"{o.weight:g}"),
    ("ASKS ABOVE", lambda o: _asks(o.approve_gpu_hours, o.approve_cost)),
]
QueueName = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The queue's name.", autocompletion=completion.queues)
]


@app.command("list")
def list_queues(
    context: typer.Context,
    owners: Annotated[
        bool, typer.Option("--owners", help="List the owners' limits instead.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the queues: waiting jobs, running jobs, limits."""
    with backend_of(context) as backend:
        if owners:
            output.show(backend.admin.owner_limits(), OWNERS, form)
        else:
            output.show(backend.admin.queues(), QUEUES, form)


@app.command()
def pause(context: typer.Context, queue: QueueName) -> None:
    """Stop starting jobs from a queue. Running jobs continue."""
    with backend_of(context) as backend:
        known = _known(backend, queue)
        backend.admin.pause(queue)
    narration.say(
        f"queue {queue} paused"
        + ("" if known else "; it has no jobs yet, so check the name: `forge queue list`")
    )


@app.command()
def resume(context: typer.Context, queue: QueueName) -> None:
    """Start jobs from a paused queue again."""
    with backend_of(context) as backend:
        if not _known(backend, queue):
            raise ClientError(
                f"there is no queue {queue!r}",
                hint="`forge queue list` lists them",
                code="queue_not_found",
            )
        backend.admin.pause(queue, paused=False)
    narration.say(f"queue {queue} resumed")


@app.command()
def limit(
    context: typer.Context,
    queue: Annotated[
        str | None, typer.Argument(help="The queue to limit.", autocompletion=completion.queues)
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Owner to limit instead of a queue.")] = None,
    jobs: Annotated[str | None, typer.Option(help="Maximum running jobs, or none.")] = None,
    gpus: Annotated[str | None, typer.Option(help="Maximum GPUs in use, or none.")] = None,
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
) -> None:
    """Limit how much of a queue or an owner runs at once. Omitted limits stay."""
    asks = Asks(approve_gpu_hours, approve_cost)
    _check(queue, owner, jobs, gpus, weight, asks)
    with backend_of(context) as backend:
        if owner is None:
            _limit_queue(backend, str(queue), jobs, gpus)
        else:
            _limit_owner(backend, owner, jobs, gpus, weight, asks)


def _limit_queue(backend: Backend, name: str, jobs: str | None, gpus: str | None) -> None:
    known = next((row for row in backend.admin.queues() if row.name == name), None)
    max_jobs = _changed("--jobs", jobs, known.max_jobs if known else None)
    max_gpus = _changed("--gpus", gpus, known.max_gpus if known else None)
    backend.admin.limit_queue(name, max_jobs=max_jobs, max_gpus=max_gpus)
    narration.say(f"queue {name}: {_limits(max_jobs, max_gpus)}")


def _limit_owner(
    backend: Backend,
    owner: str,
    jobs: str | None,
    gpus: str | None,
    weight: float | None,
    asks: Asks,
) -> None:
    listed = backend.admin.owner_limits()
    known = next((row for row in listed if row.owner == owner), OwnerSettings())
    amounts = {
        "approve_gpu_hours": _amount("--approve-gpu-hours", asks.gpu_hours, None),
        "approve_cost": _amount("--approve-cost", asks.cost, None),
    }
    said = zip(amounts, asks, strict=True)
    changed = {name: amounts[name] for name, text in said if text is not None}
    settings = OwnerSettings(
        max_jobs=_changed("--jobs", jobs, known.max_jobs),
        max_gpus=_changed("--gpus", gpus, known.max_gpus),
        weight=known.weight if weight is None else weight,
        **changed,
    )
    backend.admin.limit_owner(owner, settings)
    now = known.model_copy(update=settings.model_dump(exclude_unset=True))
    above = _asks(now.approve_gpu_hours, now.approve_cost)
    limits = f"{_limits(now.max_jobs, now.max_gpus)}, weight {now.weight:g}"
    narration.say(f"owner {owner}: {limits}{f', approval above {above}' if above else ''}")


def _check(
    queue: str | None,
    owner: str | None,
    jobs: str | None,
    gpus: str | None,
    weight: float | None,
    asks: Asks,
) -> None:
    if (queue is None) == (owner is None):
        raise _wrong("name a queue or an owner", "as in `forge queue limit night --gpus 8`")
    if (jobs, gpus, weight, *asks) == (None,) * 5:
        raise _wrong("there is nothing to change", "give --jobs or --gpus a number, or none")
    if weight is not None and owner is None:
        raise _wrong("a queue has no weight", "name an owner with --owner")
    if any(asks) and owner is None:
        raise _wrong("a queue has no approvals", "name an owner with --owner")
    _amount("--approve-gpu-hours", asks.gpu_hours, None)
    _amount("--approve-cost", asks.cost, None)
    _changed("--jobs", jobs, None)
    _changed("--gpus", gpus, None)


def _changed(option: str, text: str | None, known: int | None) -> int | None:
    if text is None:
        return known
    if text == NO_LIMIT:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) > MOST:
        raise _wrong(f"{option} {text!r} is not a limit", f"write a number, or {NO_LIMIT}")
    return int(text)


def _amount(option: str, text: str | None, known: float | None) -> float | None:
    if text is None:
        return known
    if text == NO_LIMIT:
        return None
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 <= amount <= LARGEST_AMOUNT:
        raise _wrong(f"{option} {text!r} is not an amount", f"write a number, or {NO_LIMIT}")
    return amount


def _asks(gpu_hours: float | None, cost: float | None) -> str:
    hours = [] if gpu_hours is None else [counted(gpu_hours, "GPU-hour")]
    return ", ".join([*hours, *([] if cost is None else [f"a cost of {cost:g}"])])


def _known(backend: Backend, queue: str) -> bool:
    return any(row.name == queue for row in backend.admin.queues())


def _of(count: int, most: int | None) -> str:
    return str(count) if most is None else f"{count} of {most}"


def _limits(max_jobs: int | None, max_gpus: int | None) -> str:
    return f"{_at_most(max_jobs, 'job')} and {_at_most(max_gpus, 'GPU')} at once"


def _at_most(limit: int | None, what: str) -> str:
    if limit is None:
        return f"any number of {what}s"
    return f"at most {counted(limit, what)}"


def _wrong(message: str, hint: str) -> ClientError:
    return ClientError(message, hint=hint, code="option_invalid")
