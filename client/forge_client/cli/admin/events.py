"""`forge events`: who did what, and when."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated

import typer
from forge_schema.model.job import Event

from forge_client.backend import Backend
from forge_client.cli.options.names import job_id
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption, span
from forge_client.cli.show import output
from forge_client.cli.show.output import Column, Format, brief

PAGE = 1000
COLUMNS: list[Column] = [
    ("WHEN", lambda e: e.at.astimezone().strftime("%Y-%m-%d %H:%M:%S")),
    ("WHO", lambda e: e.actor),
    ("WHAT", lambda e: e.action),
    ("JOB", lambda e: e.job_id),
    ("WORKER", lambda e: e.worker_id),
    ("DETAIL", lambda e: brief(e.detail)),
]
DROP = ("WORKER", "WHO")


def events(
    context: typer.Context,
    job: Annotated[
        int | None,
        typer.Option(metavar="JOB", help="Only events of this job.", parser=str, callback=job_id),
    ] = None,
    worker: Annotated[
        str | None, typer.Option(help="Only events of this worker, by name or id.")
    ] = None,
    actor: Annotated[
        str | None, typer.Option(help="Only this actor, e.g. user:ann, key:ID or worker:7.")
    ] = None,
    since: Annotated[str, typer.Option(help="How far back to start, e.g. 90m or 7d.")] = "1d",
    form: FormatOption = Format.TABLE,
) -> None:
    """Print the audit trail, oldest first."""
    back = span("--since", since)
    with backend_of(context) as backend:
        worker_id = _worker_id(backend, worker)
        output.show(_pages(backend, back, job, worker_id, actor), COLUMNS, form, DROP)


def _pages(
    backend: Backend, since: timedelta, job_id: int | None, worker_id: int | None, actor: str | None
) -> Iterator[Event]:
    after: datetime | None = None
    while True:
        page = backend.admin.events(
            since=since, after=after, job_id=job_id, worker_id=worker_id, actor=actor, count=PAGE
        )
        yield from page
        # Do not wait for an empty page: a busy queue always has another event.
        if len(page) < PAGE:
            return
        after = page[-1].at


def _worker_id(backend: Backend, worker: str | None) -> int | None:
    if worker is None:
        return None
    return int(worker) if worker.isdecimal() else backend.admin.worker_named(worker)
