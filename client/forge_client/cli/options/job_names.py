"""Arguments and options that name jobs: by id, by name, or `@last`."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from forge_client.cli.options.completion import jobs
from forge_client.cli.options.session import options_backend

HELP = "Id, name, start of a name, or @last."
LAST: Any = "@last"
CHECKPOINT = re.compile(r"(.+?)((?::\d+\.\d+)?)", re.DOTALL)


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
    named = [one for text in handles for one in text.split(",")]
    return [str(job_id) for job_id in ids_of(context, named)]


def checkpoint(context: typer.Context, name: str | None) -> str | None:
    """Return the name of a checkpoint with its job as an id: `digits:2.7` as `14:2.7`."""
    found = CHECKPOINT.fullmatch(name or "")
    if found is None or context.resilient_parsing:
        return name
    return f"{ids_of(context, [found[1]])[0]}{found[2]}"


# The queue resolves a name while the command line is parsed, so commands get only ids.
JobId = Annotated[
    int, typer.Argument(metavar="JOB", help=HELP, parser=str, callback=job_id, autocompletion=jobs)
]
OptionalJobIds = Annotated[
    list[int] | None,
    typer.Argument(metavar="JOB...", help=HELP, parser=str, callback=_ids, autocompletion=jobs),
]
