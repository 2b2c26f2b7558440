"""What callers ask for, checked before anybody is asked."""

from collections.abc import Sequence

from forge_schema.model.states import State

from forge_client.errors import ClientError

LARGEST_ID = 2**63 - 1


def checked_job(job_id: int) -> int:
    """Return an id that a job could have.

    Raises:
        ClientError: none could.
    """
    if not 0 < job_id <= LARGEST_ID:
        raise ClientError(
            f"there is no job {job_id}",
            hint="`forge ps` lists the jobs",
            code="job_unknown",
        )
    return job_id


def checked_states(words: Sequence[str]) -> Sequence[str]:
    """Return words that are all states of jobs.

    Raises:
        ClientError: one is not.
    """
    if unknown := set(words) - set(State):
        raise ClientError(
            f"{min(unknown)!r} is not a job state",
            hint=f"states are {', '.join(State)}",
            code="state_unknown",
        )
    return words
