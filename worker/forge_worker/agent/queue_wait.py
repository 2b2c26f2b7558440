"""Waits at startup for a queue that does not answer, while leftovers stay within their leases."""

from collections.abc import Callable
from random import uniform
from threading import Event
from typing import TypeVar

import structlog
from forge_schema.database.pool import AccessRefused, DatabaseUnreachable, NotMigrated
from forge_schema.model.errors import ForgeError
from forge_schema.queue.registry import NameInUse

from forge_worker.circuit_breaker import QueueRefused
from forge_worker.clock import seconds
from forge_worker.job_runs import leftovers
from forge_worker.runners.docker.runner import DockerRunner, engine_answers
from forge_worker.settings.settings import WorkerSettings

T = TypeVar("T")

FIRST_PAUSE_S = 0.5

log = structlog.get_logger(__name__)


class NotWaited(Exception):
    """The worker was told to leave before the queue answered."""


def until_answered(
    step: Callable[[], T],
    *,
    limit_s: float,
    name_limit_s: float = 0.0,
    leaving: Event | None = None,
    unanswered: Callable[[], None] = lambda: None,
) -> T:
    """Retry a step until the queue answers; pauses double up to `limit_s` seconds, with jitter.

    `unanswered` is called before each pause. If the name is in use, retries continue for
    `name_limit_s` seconds: its holder may be dead without the queue knowing yet.

    Raises:
        QueueRefused: the server refuses the token, or its certificate is not trusted.
        AccessRefused: the database refuses the role.
        NotMigrated: the database lacks tables.
        NameInUse: another live worker has this name.
        NotWaited: `leaving` was set.
    """
    name_until_s = seconds() + name_limit_s
    leaving = leaving or Event()
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return step()
        except (QueueRefused, AccessRefused, NotMigrated):
            raise
        except (DatabaseUnreachable, NameInUse) as error:
            if isinstance(error, NameInUse) and seconds() >= name_until_s:
                raise
            wait_s = pause_s * uniform(0.5, 1.0)  # noqa: S311 - no secret
            log.warning("queue_unreachable", why=error.message, again_in_s=round(wait_s, 1))
        unanswered()
        if leaving.wait(wait_s):
            raise NotWaited
        pause_s = min(pause_s * 2, limit_s)


def end_leftovers(settings: WorkerSettings) -> None:
    """Stop the containers that an earlier agent left, if the policy is strict.

    It is unknown how long their leases still hold. Processes end before theirs can.
    """
    if settings.lease_policy != "strict" or settings.runner == "process" or not engine_answers():
        return
    try:
        leftovers.reap(leftovers.survivors(settings.worker_dir, [DockerRunner()]).values())
    except ForgeError as error:
        log.warning("containers_outlive_leases", error=error.message)


def pause(settings: WorkerSettings, pause_s: float) -> None:
    """Pause before a start, without leaving containers running unattended."""
    end_leftovers(settings)
    Event().wait(pause_s)
