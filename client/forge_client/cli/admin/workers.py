"""`forge worker list` and `drain`: the workers that there are."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from forge_schema.model.quantities import duration_text, size_text
from forge_schema.model.spec import SECRET
from forge_schema.model.worker import WorkerInfo, speed_text

from forge_client.cli.options import completion
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format
from forge_client.results.names import find_worker


def heard(worker: WorkerInfo) -> str:
    """Say when a worker was last heard from; one created by an admin may not have connected yet."""
    if worker.status == "connecting":
        return "not yet"
    return f"{duration_text(worker.silent_s)} ago"


def _labels(labels: Mapping[str, str]) -> str:
    # A worker may have hundreds of secrets.
    shown = [f"{name}={value}" for name, value in labels.items() if not name.startswith(SECRET)]
    return ",".join(shown)


COLUMNS: list[Column] = [
    ("ID", lambda w: w.id),
    ("NAME", lambda w: w.name),
    ("STATUS", lambda w: w.status),
    ("JOBS", lambda w: w.leases),
    ("CPUS", lambda w: f"{w.cpus:g}"),
    ("MEMORY", lambda w: size_text(w.memory_mb << 20)),
    ("GPUS", lambda w: ", ".join(str(gpu.get("name", "?")) for gpu in w.gpus)),
    ("SPEED", lambda w: speed_text(w.speed)),
    ("LABELS", lambda w: _labels(w.labels)),
    ("USE", lambda w: in_use(w.condition) + left_out(w) + unwarned(w)),
    ("HEARD", heard),
]

# What a narrow terminal does without, the least important first.
DROP = ("LABELS", "SPEED", "USE", "HEARD", "CPUS", "MEMORY")


def in_use(condition: dict[str, Any]) -> str:
    """Summarise a machine's condition, or why it takes no jobs or left by itself."""
    if left := condition.get("left"):
        return f"left: {left}"
    if said := condition.get("constrained"):
        return str(said)
    uses = {"cpu": condition.get("cpu_percent"), "memory": condition.get("memory_percent")}
    words = [f"{what} {use:.0f}%" for what, use in uses.items() if isinstance(use, int | float)]
    broken = condition.get("quarantine")
    if broken and isinstance(broken, dict | list):
        words.append(f"{len(broken)} of its GPUs broken")
    return ", ".join(words)


def left_out(worker: WorkerInfo) -> str:
    """Say that a worker takes no part in gangs, because the other machines could not reach it."""
    if worker.gangs_after is None:
        return ""
    return f" (no gangs: nobody can reach {worker.address}; check --advertise-address)"


def unwarned(worker: WorkerInfo) -> str:
    """Say that a worker would not see its cloud's notice before it loses the machine."""
    why = worker.condition.get("no_notices")
    return f" (no preemption notices: {why})" if why else ""


def workers(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List the workers."""
    with backend_of(context) as backend:
        output.show(backend.workers(), COLUMNS, form, DROP)


def drain(
    context: typer.Context,
    worker: Annotated[
        str,
        typer.Argument(
            metavar="WORKER", help="The worker's name or id.", autocompletion=completion.workers
        ),
    ],
    undo: Annotated[bool, typer.Option("--undo", help="Let it take jobs again.")] = False,
) -> None:
    """Let a worker finish its jobs and take no new ones."""
    with backend_of(context) as backend:
        found = find_worker(backend, worker)
        backend.drain(found.id, undo=undo)
    then = "takes jobs again" if undo else "takes no more jobs"
    narration.say(f"worker {found.name} {then}, from its next heartbeat on")
