"""Names on the command line: of jobs, by id, name or `@last`; and what a shell completes."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from forge_schema.model.quantities import counted

from forge_client.cli.options.session import backend_of, options_backend
from forge_client.cli.quick.completion import NEWEST, PATIENCE_S, Known, known_jobs

if TYPE_CHECKING:
    from forge_client.backend import Backend


Completion: TypeAlias = Callable[[typer.Context, str], list[tuple[str, str]]]
HELP = "Id, name, start of a name, or @last."
LAST: Any = "@last"
CHECKPOINT = re.compile(r"(.+?)((?::\d+\.\d+)?)", re.DOTALL)


def _completing(known: Callable[["Backend"], Known]) -> Completion:
    """Return a completion from what the queue knows; with remarks that some shells show."""

    def complete(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        items: list[tuple[str, str]] = []

        def ask() -> None:
            # Whatever goes wrong, a person who types must not see a traceback.
            with suppress(Exception), backend_of(context) as backend:
                items.extend(known(backend))

        asking = Thread(target=ask, daemon=True)
        asking.start()
        asking.join(PATIENCE_S)
        return [item for item in items if item[0].startswith(incomplete)]

    return complete


def _experiments(backend: "Backend") -> Known:
    experiments_there = (job.experiment for job in backend.jobs("experiment:*", count=NEWEST))
    return ((name, "") for name in dict.fromkeys(experiments_there) if name)


def _sweeps(backend: "Backend") -> Known:
    groups = backend.findings.run_groups("sweep:*", by="sweep", owner=backend.me().owner)
    return ((item.name, counted(item.runs, "job")) for item in groups.items[:NEWEST] if item.name)


jobs = _completing(known_jobs)
sweeps = _completing(_sweeps)
experiments = _completing(_experiments)
keys = _completing(lambda backend: ((row.id, row.name) for row in backend.admin.api_keys()))
teams = _completing(lambda backend: ((row.name, "") for row in backend.teams()))
queues = _completing(lambda backend: ((row.name, "") for row in backend.admin.queues()))
notifications = _completing(
    lambda backend: ((row.name, row.kind) for row in backend.notifications.listed())
)
inputs = _completing(lambda backend: ((row.name, row.source) for row in backend.inputs()))
reports = _completing(lambda backend: ((name, "") for name in backend.reports()))
schedules = _completing(lambda backend: ((row.name, row.cron) for row in backend.schedules()))
templates = _completing(lambda backend: ((row.name, "") for row in backend.templates()))
workers = _completing(lambda backend: ((row.name, row.status) for row in backend.workers()))


def _is_id(handle: str) -> bool:
    return handle.isascii() and handle.isdecimal() and int(handle) > 0


def ids_of(context: typer.Context, handles: Sequence[str]) -> list[int]:
    """Return the ids of jobs; the queue is asked only if one of them is not an id."""
    if all(map(_is_id, handles)):
        return [int(handle) for handle in handles]
    backend = options_backend(context)
    return [backend.job_id(handle) for handle in handles]


def job_id(context: typer.Context, handle: str | None) -> int | None:
    """Return the id of a job, None if none is named."""
    if handle is None or context.resilient_parsing:
        return None
    return ids_of(context, [handle])[0]


def _ids(context: typer.Context, handles: Sequence[str] | None) -> list[int] | None:
    if not handles or context.resilient_parsing:
        return None
    return ids_of(context, handles)


def needed(context: typer.Context, handles: Sequence[str] | None) -> list[str] | None:
    """Return the jobs that another job waits for as ids: `7`, `@last` or `prepare,train`."""
    if not handles or context.resilient_parsing:
        return None
    named = [handle for text in handles for handle in text.split(",")]
    return [str(job_id) for job_id in ids_of(context, named)]


def checkpoint(context: typer.Context, name: str | None) -> str | None:
    """Return the name of a checkpoint with its job as an id: `digits:2.7` as `14:2.7`."""
    match = CHECKPOINT.fullmatch(name or "")
    if match is None or context.resilient_parsing:
        return name
    return f"{ids_of(context, [match[1]])[0]}{match[2]}"


# The queue resolves a name while the command line is parsed, so commands get only ids.
JobId = Annotated[
    int, typer.Argument(metavar="JOB", help=HELP, parser=str, callback=job_id, autocompletion=jobs)
]
OptionalJobIds = Annotated[
    list[int] | None,
    typer.Argument(metavar="JOB...", help=HELP, parser=str, callback=_ids, autocompletion=jobs),
]
