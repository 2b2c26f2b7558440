"""`forge events`: who did what, and when."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated

import typer
from forge_schema.model.job import Event
from forge_schema.trail import in_words, rest_of

from forge_client.backend import Backend
from forge_client.cli.options.names import job_id
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format, brief
from forge_client.results.names import age, require_moment

PAGE, ON_SCREEN = 1000, 25
# Half an hour of a busy queue has enough for a screen; of a quiet one, a week may not.
FIRST, WIDER = timedelta(minutes=30), 8
DROP = ("WORKER", "WHO")
Read = Callable[[timedelta], Iterator[Event]]


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
        str | None, typer.Option(help="Only this actor: a name, or user:ann, key:ID, worker:7.")
    ] = None,
    since: Annotated[str, typer.Option(help="Where to start: 90m, yesterday, 2026-11-01.")] = "1d",
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-n", help="Only the newest; default: all, on a terminal 25.", min=1
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Print the audit trail: a table with the newest first, JSON with the oldest first."""
    require_moment("--since", since)
    table = form is Format.TABLE
    most = count or (ON_SCREEN if table and sys.stdout.isatty() else None)
    with backend_of(context) as backend:
        back = age("--since", since, backend)
        worker_id = _worker_id(backend, worker)
        exact = actor if actor and ":" in actor else None
        names = _names(backend) if table or actor != exact else {}
        # What the column WHO says may be several: a person, and the person's keys.
        called = {actor, f"user:{actor}", *(full for full, name in names.items() if name == actor)}

        def read(since: timedelta) -> Iterator[Event]:
            found = _pages(backend, since, job, worker_id, exact)
            return found if actor == exact else (one for one in found if one.actor in called)

        events = _newest(read, back, most) if most else read(back)
        shown = [*events][::-1] if table else events
        nothing = f"no events since {since}; --since 7d looks further back"
        output.show(shown, _columns(names), form, DROP, nothing=nothing)
    if isinstance(shown, list) and count is None and len(shown) == most:
        narration.say(f"the newest {most} since {since}; -n shows more", "dim")


def _names(backend: Backend) -> dict[str, str]:
    """Return by actor the names of workers that are still there, and whose each key is."""
    workers = {f"worker:{it.id}": it.name for it in backend.admin.workers()}
    return workers | {f"key:{it.id}": it.owner for it in backend.admin.api_keys()}


def _columns(names: Mapping[str, str]) -> list[Column]:
    """Return the columns, with people and workers by name."""
    return [
        ("WHEN", lambda e: e.at.astimezone().strftime("%Y-%m-%d %H:%M:%S")),
        ("WHO", lambda e: names.get(e.actor, e.actor)),
        ("WHAT", lambda e: in_words(e.action, e.detail or {})),
        ("JOB", lambda e: e.job_id),
        ("WORKER", lambda e: names.get(f"worker:{e.worker_id}", e.worker_id)),
        ("DETAIL", lambda e: brief(rest_of(e.action, e.detail))),
    ]


def _newest(read: Read, since: timedelta, count: int) -> Iterable[Event]:
    """Return the newest events, reading as little before them as it takes."""
    back = min(since, FIRST)
    while len(newest := deque(read(back), maxlen=count)) < count and back < since:
        back = min(since, back * WIDER)
    return newest


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
