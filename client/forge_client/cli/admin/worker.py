"""`forge worker`: workers, and the tokens of those that admins create."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from forge_schema.model.quantities import duration_text, names_text, size_text, span_text
from forge_schema.model.spec import FOR_ALL, INPUT, SECRET
from forge_schema.model.states import WorkerStatus
from forge_schema.model.worker import WorkerInfo, speed_text
from forge_schema.proxies import is_loopback

from forge_client import running
from forge_client.cli.options import names
from forge_client.cli.options.command_line import VerbNames
from forge_client.cli.options.names import workers as workers_named
from forge_client.cli.options.selection import SureOption, ask
from forge_client.cli.options.session import backend_of, settings_of
from forge_client.cli.options.values import (
    Expires,
    FormatOption,
    ServerOption,
    WorkerLabelOption,
    lasting,
    read_public_key,
)
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format
from forge_client.cli.show.standing import heard
from forge_client.connection import connect
from forge_client.project.written import labels
from forge_client.results.names import find_worker
from forge_client.settings import Settings


def _labels(labels: Mapping[str, str]) -> str:
    # A worker may have hundreds of secrets.
    shown = [
        f"{name}={value}" for name, value in labels.items() if not name.startswith((SECRET, INPUT))
    ]
    return ",".join(shown)


def standing(worker: WorkerInfo) -> str:
    """Return a worker's status, and whether its next heartbeat is overdue."""
    if worker.status == WorkerStatus.CONNECTING:
        return "not connected yet"
    return f"{worker.status}, silent" if worker.silent else str(worker.status)


COLUMNS: list[Column] = [
    ("ID", lambda w: w.id),
    ("NAME", lambda w: w.name),
    ("STATUS", standing),
    ("JOBS", lambda w: w.leases),
    ("CPUS", lambda w: f"{w.cpus:g}" if w.cpus else ""),
    ("MEMORY", lambda w: size_text(w.memory_mb << 20) if w.memory_mb else ""),
    ("GPUS", lambda w: ", ".join(str(gpu.get("name", "?")) for gpu in w.gpus)),
    ("SPEED", lambda w: speed_text(w.speed)),
    ("LABELS", lambda w: _labels(w.labels)),
    ("USE", lambda w: in_use(w.condition) + keeps(w) + suspected(w) + left_out(w) + unwarned(w)),
    ("HEARD", heard),
]

# Of those whose a secret is.
MOST_NAMES = 20
# What a narrow terminal does without, the least important first.
DROP = ("LABELS", "SPEED", "USE", "HEARD", "CPUS", "MEMORY")


def in_use(condition: dict[str, Any]) -> str:
    """Summarise a machine's condition, or why it takes no jobs or left by itself."""
    if left := condition.get("left"):
        return f"left: {left}"
    if reason := condition.get("constrained"):
        return str(reason)
    uses = {"cpu": condition.get("cpu_percent"), "memory": condition.get("memory_percent")}
    words = [f"{what} {use:.0f}%" for what, use in uses.items() if isinstance(use, int | float)]
    broken = condition.get("quarantine")
    if broken and isinstance(broken, dict | list):
        words.append(f"{len(broken)} of its GPUs broken")
    return ", ".join(words)


def keeps(worker: WorkerInfo) -> str:
    """Say for which gang a worker keeps room."""
    return f" (keeps room for job {worker.keeps_for})" if worker.keeps_for else ""


def left_out(worker: WorkerInfo) -> str:
    """Say that a worker takes no part in gangs, because the other machines could not reach it."""
    if worker.gangs_after is None:
        return ""
    return f" (no gangs: nobody can reach {worker.address}; check --advertise-address)"


def suspected(worker: WorkerInfo) -> str:
    """Say that a worker is suspected of failing jobs, and when it tries the next one."""
    if worker.suspected_for is None:
        return ""
    rests = f"; rests for {duration_text(worker.rests_s)}" if worker.rests_s else "; tries one job"
    return f" (suspected: {worker.suspected_for}{rests})"


def unwarned(worker: WorkerInfo) -> str:
    """Say that a worker would not see its cloud's notice before it loses the machine."""
    why = worker.condition.get("no_notices")
    return f" (no preemption notices: {why})" if why else ""


def workers(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List the workers."""
    with backend_of(context) as backend:
        nothing = "no workers yet; an admin's `forge worker add NAME` adds a machine"
        output.show(backend.workers(), COLUMNS, form, DROP, nothing=nothing)


def _whose(worker: WorkerInfo) -> str:
    return ", ".join(
        name if whose == [FOR_ALL] else f"{name} of {names_text(_known(whose), MOST_NAMES)}"
        for name, whose in worker.secrets.items()
    )


def _known(owners: Sequence[str]) -> list[str]:
    return ["an owner without jobs" if owner == "?" else owner for owner in owners]


DETAILS: list[Column] = [
    *COLUMNS,
    ("KIND", lambda w: w.kind),
    ("VERSION", lambda w: w.version),
    ("DISK", lambda w: size_text(w.disk_mb << 20) if w.disk_mb else ""),
    ("SECRETS", _whose),
]


def show_worker(
    context: typer.Context,
    worker: Annotated[
        str,
        typer.Argument(
            metavar="WORKER", help="The worker's name or id.", autocompletion=names.workers
        ),
    ],
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a worker: its machine, its labels, and the names of its secrets that you may know."""
    with backend_of(context) as backend:
        info = find_worker(backend, worker)
    pairs = [(title.lower(), value(info)) for title, value in DETAILS]
    output.show_one(info, form, lambda: output.fields(pairs))


def drain(
    context: typer.Context,
    worker: Annotated[
        str,
        typer.Argument(
            metavar="WORKER", help="The worker's name or id.", autocompletion=names.workers
        ),
    ],
    undo: Annotated[bool, typer.Option("--undo", help="Let it take jobs again.")] = False,
) -> None:
    """Let a worker finish its jobs and take no new ones."""
    with backend_of(context) as backend:
        info = find_worker(backend, worker)
        backend.drain(info.id, undo=undo)
    then = "takes jobs again" if undo else "takes no more jobs"
    narration.say(f"worker {info.name} {then}, from its next heartbeat on")


app = typer.Typer(
    cls=VerbNames, no_args_is_help=True, help="Workers: list, add a machine, drain, tokens."
)
SOMEWHERE = "https://YOUR-SERVER"
Worker = Annotated[
    str,
    typer.Argument(metavar="WORKER", help="The worker's name or id.", autocompletion=workers_named),
]
PublicKey = Annotated[
    Path | None, typer.Option(help="Ed25519 public key; the worker must then sign every request.")
]


@app.callback()
def worker() -> None:
    """Manage workers, and create those that connect through a server."""


app.command("list")(workers)
app.command("show")(show_worker)
app.command()(drain)


@app.command()
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Unique name of the worker.")],
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Let it leave after one job.")
    ] = False,
    label: WorkerLabelOption = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="Lifetime of the line, e.g. 7d. Default: 1d.")
    ] = None,
    server: ServerOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Print a line to paste on another machine, which makes it a worker.

    The line works once. Forge waits for the machine until the line expires. Until it has
    connected, the same command makes a new line, and the old one stops working.
    """
    given, lasts = labels(label or []), lasting(expires)
    with backend_of(context) as backend:
        made = backend.admin.invite_worker(
            name, url=server, ephemeral=ephemeral, labels=given, lasts=lasts
        )
    within = span_text(made.lasts_s)
    narration.say(f"paste this line on the machine that becomes {name}, within {within}:")
    output.show_one(made.model_dump(), form, lambda: print(made.line))  # noqa: T201 - the data
    narration.say(f"it works once; then `forge worker list` shows {name}", "dim")
    narration.say(
        "in Docker, jobs that name no image need one there: `export"
        " FORGE_DEFAULT_IMAGE=python:3.11-slim` before the line",
        "dim",
    )
    if is_loopback(urlsplit(made.url).hostname or ""):
        narration.say(
            "the server's address is this machine's own, so the line works only here; give"
            " --server the URL under which other machines reach it"
        )


@app.command()
def upgrade(
    context: typer.Context,
    server: ServerOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Print the line that upgrades each machine which has joined, to the server's version.

    It is the same for all of them, and may be pasted again. Running jobs continue.
    """
    with backend_of(context) as backend:
        made = backend.admin.upgrade_line(url=server)
    narration.say("paste this line on each machine, as the user who pasted the first one there:")
    output.show_one(made.model_dump(), form, lambda: print(made.line))  # noqa: T201 - the data


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Unique name of the worker.")],
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Let it leave after one job.")
    ] = False,
    label: WorkerLabelOption = None,
    expires: Expires = None,
    public_key_file: PublicKey = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Create a worker and print its token. It is shown once.

    Forge waits for the worker until its token expires, or forever if it does not.
    """
    given, lasts = labels(label or []), lasting(expires)
    public_key = read_public_key(public_key_file) if public_key_file else None
    settings = settings_of(context)
    with connect(settings) as backend:
        made = backend.admin.create_worker(
            name, ephemeral=ephemeral, labels=given, lasts=lasts, public_key=public_key
        )
    narration.say(f"worker {name} has the id {made.id}; on its machine, run")
    _show(made.id, made.text, _server(settings), form)


@app.command()
def rotate(
    context: typer.Context, worker: Worker, expires: Expires = None,
    public_key_file: PublicKey = None, form: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Replace a worker's token and print the new one. The old one stops working.

    A public key that it must sign with stays, unless another is given.
    """
    lasts = lasting(expires)
    public_key = read_public_key(public_key_file) if public_key_file else None
    settings = settings_of(context)
    with connect(settings) as backend:
        info = find_worker(backend, worker)
        token = backend.admin.rotate_worker(info.id, lasts=lasts, public_key=public_key)
    narration.say(f"worker {info.name} has a new token; the old one no longer works. Now run")
    _show(str(info.id), token, _server(settings), form)


@app.command()
def delete(context: typer.Context, worker: Worker, yes: SureOption = False) -> None:
    """Remove an offline worker and its token."""
    with backend_of(context) as backend:
        info = find_worker(backend, worker)
        lost = f"the token of {info.name} ends; its machine would have to join again"
        ask(f"Remove the worker {info.name}?", yes=yes, lost=lost)
        backend.admin.delete_worker(info.id)
    narration.say(f"worker {info.name} removed")


def _server(settings: Settings) -> str:
    if settings.url or settings.database_url:
        return settings.url or SOMEWHERE
    return running.find(settings.dir).url or SOMEWHERE


def _show(worker_id: str, token: str, url: str, form: Format) -> None:
    # Only the token goes to stdout, which may be redirected to a file for the worker.
    narration.say(f"  forge-worker --url {url} --token-file FILE, with the token in FILE")
    narration.say("save the token now: it is not stored and cannot be shown again", "dim")
    output.show_one({"id": int(worker_id), "token": token}, form, lambda: print(token))  # noqa: T201 - the data
