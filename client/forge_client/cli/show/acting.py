"""Acts on jobs one by one, and what is said of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_schema.model.quantities import names_text
from forge_schema.model.states import in_state

from forge_client.cli.show import narration
from forge_client.errors import ClientError, Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from forge_client.backend import Backend

ANSWERS = {
    "cancelled": "job {} is cancelled",
    "running": "cancelling job {}: its worker stops it, or the sweeper once that is lost",
}


def require_all(ids: Sequence[int], there: Collection[int]) -> None:
    """Check that all jobs are there, before anything is done to one of them.

    Raises:
        ClientError: some are not.
    """
    absent = [str(job) for job in dict.fromkeys(ids) if job not in there]
    if absent:
        raise ClientError(
            f"there is no job {names_text(absent, len(absent), last='or')}; nothing was done",
            hint="`forge ps` lists them",
            code="job_unknown",
        )


def each_of(ids: Sequence[int], act: Callable[[int], None]) -> None:
    """Act on every job, even after one is refused, then report all refusals."""
    refused: list[ClientError] = []
    for job in ids:
        try:
            act(job)
        except (NotFound, Conflict) as error:
            refused.append(error)
    if refused:
        message = "; ".join(error.message for error in refused)
        first = refused[0]
        raise ClientError(message, hint=first.hint, code=first.code, exit_code=first.exit_code)


def cancel_one(backend: Backend, job: int) -> None:
    """Cancel a job, and say what comes of it.

    Raises:
        ClientError: it has already ended, or there is none.
    """
    state = backend.cancel(job)
    if state not in ANSWERS:
        raise ClientError(
            f"job {job} has already ended: it {in_state(state)}",
            hint=f"`forge show {job}` shows how it ended",
            code="already_over",
        )
    narration.say(ANSWERS[state].format(job))
