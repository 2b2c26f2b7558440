"""What a shell completes: names that the queue knows. Quick, and silent if it does not answer."""

from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias

import typer
from forge_schema.model.quantities import counted

from forge_client.cli.options.known import NEWEST, PATIENCE_S, Known, known_jobs
from forge_client.cli.options.session import backend_of

if TYPE_CHECKING:
    from forge_client.backend import Backend

Completion: TypeAlias = Callable[[typer.Context, str], list[tuple[str, str]]]


def _completing(known: Callable[["Backend"], Known]) -> Completion:
    """Return a completion from what the queue knows; with remarks that some shells show."""

    def complete(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []

        def ask() -> None:
            # Whatever goes wrong, a person who types must not see a traceback.
            with suppress(Exception), backend_of(context) as backend:
                found.extend(known(backend))

        asking = Thread(target=ask, daemon=True)
        asking.start()
        asking.join(PATIENCE_S)
        return [one for one in found if one[0].startswith(incomplete)]

    return complete


def _experiments(backend: "Backend") -> Known:
    found = (job.experiment for job in backend.jobs("experiment:*", count=NEWEST))
    return ((name, "") for name in dict.fromkeys(found) if name)


def _sweeps(backend: "Backend") -> Known:
    found = backend.findings.run_groups("sweep:*", by="sweep", owner=backend.me().owner)
    return ((one.name, counted(one.runs, "job")) for one in found.items[:NEWEST] if one.name)


jobs = _completing(known_jobs)
sweeps = _completing(_sweeps)
experiments = _completing(_experiments)
keys = _completing(lambda backend: ((one.id, one.name) for one in backend.admin.api_keys()))
queues = _completing(lambda backend: ((one.name, "") for one in backend.admin.queues()))
notifications = _completing(
    lambda backend: ((one.name, one.kind) for one in backend.notifications.listed())
)
reports = _completing(lambda backend: ((name, "") for name in backend.reports()))
schedules = _completing(lambda backend: ((one.name, one.cron) for one in backend.schedules()))
templates = _completing(lambda backend: ((one.name, "") for one in backend.templates()))
workers = _completing(lambda backend: ((one.name, one.status) for one in backend.workers()))
