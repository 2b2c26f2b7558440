"""What is said of jobs that an act on many left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_schema.model.job import MOST_TAGS, job_unknown

from forge_client.errors import ClientError

if TYPE_CHECKING:
    from forge_schema.model.job import Acted

DONE = {"changed", "deleted"}


def check_acted(acted: Acted) -> None:
    """Refuse what was left alone.

    Raises:
        ClientError: some jobs were; all of them are named.
    """
    refused = [_refusal(acted, job_id) for job_id, word in acted.became.items() if word not in DONE]
    if refused:
        message = "; ".join(error.message for error in refused)
        raise ClientError(message, hint=refused[0].hint, code=refused[0].code)


def _refusal(acted: Acted, job_id: int) -> ClientError:
    match acted.became[job_id]:
        case "unended":
            text, hint = "has not ended", f"`forge cancel {job_id}` ends it"
        case "full":
            text = f"would have more than {MOST_TAGS} tags"
            hint = f"`forge tag remove TAG {job_id}` makes room"
        case "needed":
            user = acted.needed_by.get(job_id)
            text = f"is needed by job {user}, which has not ended"
            hint = f"wait until job {user} has ended, or `forge cancel {user}`"
        case "absent":
            unknown = job_unknown(job_id)
            return ClientError(unknown.message, hint=unknown.hint, code=unknown.code)
        case _:
            text, hint = "is being changed by somebody else", "try again"
    return ClientError(f"job {job_id} {text}", hint=hint, code="job_left_alone")
