"""Sentences about how attempts and jobs ended, and why an act on many left some jobs alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from forge_schema.model.quantities import counted, duration_text, exit_in_words
from forge_schema.model.states import reason_in_words

from forge_client.errors import ClientError

if TYPE_CHECKING:
    from forge_schema.model.job import Acted, Attempt, JobDetail, JobStatus

# Caused by the machines; the job continues by itself.
INTERRUPTIONS = {"worker_lost", "preempted", "drained", "gpu_fault", "run_ended"}
# These count against the job's retries.
FAILURES = {"exit_code", "oom", "disk_full", "stalled"}
ABSENT = re.compile(r"No module named '?(\w+)")
TWICE = "failed the same way twice"
DONE = {"changed", "deleted"}


def waiting_for(status: JobStatus) -> str:
    """Say what a held job waits for; empty if it is not held."""
    asked = f" ({status.approval.amount})" if status.approval else ""
    words = {"jobs": "other jobs", "approval": f"approval{asked}", "turn": "its turn"}
    reasons = [words.get(word, word) for word in status.waits_for or ()]
    return f"waits for {' and '.join(reasons)}" if reasons else ""


def first_line(detail: str | None) -> str:
    """Return the summary in a detail's first line; the last lines of the output follow it."""
    return (detail or "").split("\n", 1)[0]


def own_package(detail: str | None) -> str:
    """Say that the module which a job could not import is in the user's own environment."""
    match = ABSENT.search(first_line(detail))
    if match is None:
        return ""
    # Few jobs fail so.
    from forge_client.project.environment.active import with_module  # noqa: PLC0415

    name = with_module(match[1])
    return f"{match[1]} is in your active environment {name}" if name else ""


def ending(status: JobStatus) -> str:
    """Describe a job's state in one sentence."""
    state = "was cancelled" if status.state == "cancelled" else status.state
    parts = [f"job {status.job_id} {status.name!r} {state}"]
    if status.terminal and status.state not in ("succeeded", "cancelled"):
        parts[0] += f" after {counted(status.attempt, 'attempt')}"
        parts += [_why(status), first_line(status.detail)]
    elif status.reason == "dependency_failed" or not status.attempt:
        parts.append(first_line(status.detail))
    sentence = ": ".join(filter(None, parts))
    sentence = "; ".join(
        filter(None, (sentence, own_package(status.detail) if status.terminal else ""))
    )
    # A worker may have said what to change.
    if not _hopeless(status) or "submit" in first_line(status.detail):
        return sentence
    return f"{sentence}; correct it and submit again, or `forge rerun {status.job_id} -- COMMAND`"


def _why(status: JobStatus) -> str:
    if status.reason == "exit_code":
        return exit_in_words(status.exit_code)
    code = f" (exit code {status.exit_code})" if status.exit_code else ""
    return f"{reason_in_words(status.reason)}{code}"


def _hopeless(status: JobStatus) -> bool:
    final = not status.exhausted and status.reason == "exit_code"
    return final and TWICE not in first_line(status.detail)


def decisive(attempts: Iterable[Attempt]) -> dict[int, Attempt]:
    """Return the end of each attempt: on several machines, of the member that failed first."""
    deciding: dict[int, Attempt] = {}
    for attempt in sorted(attempts, key=_decides):
        deciding.setdefault(attempt.attempt, attempt)
    return deciding


def _decides(attempt: Attempt) -> tuple[bool, float, int]:
    if attempt.reason in ("succeeded", "run_ended"):
        return True, 0.0, attempt.rank
    return False, attempt.finished_at.timestamp(), attempt.rank


def attempt_ending(ended: Attempt) -> str:
    """Describe how and after what time an attempt ended."""
    began = ended.started_at or ended.claimed_at
    after = f"after {duration_text((ended.finished_at - began).total_seconds())}"
    rank = f" on rank {ended.rank}" if ended.rank else ""
    return f"attempt {ended.attempt} {_happened(ended)}{rank} {after}"


def _happened(ended: Attempt) -> str:
    reason = ended.reason
    if reason in ("succeeded", "cancelled"):
        return {"cancelled": "was cancelled"}.get(reason, reason)
    if reason in INTERRUPTIONS:
        return f"was interrupted ({reason_in_words(reason)})"
    if reason == "exit_code" and ended.exit_code is not None:
        return f"failed with exit code {ended.exit_code}"
    if reason == "exit_code":
        return "failed (preparation failed)"
    return f"failed ({reason_in_words(reason)})"


def what_follows(status: JobDetail, reason: str) -> str:
    """Say when a job that waits after an attempt is retried, and how many retries are left."""
    if reason in INTERRUPTIONS:
        return "waiting for a worker to continue"
    when = "now"
    if status.state == "queued" and status.due_in_s is not None:
        when = f"in {duration_text(max(0.0, status.due_in_s))}"
    left = status.retries_left
    if reason not in FAILURES or left is None:
        return f"retrying {when}"
    # Not counting the retry that this sentence announces.
    return f"retrying {when} ({counted(left, 'retry', 'retries')} left)"


def check_acted(acted: Acted) -> None:
    """Refuse what was left alone; `ClientError` if some jobs were; all of them are named."""
    refused = [_refusal(acted, job_id) for job_id, word in acted.became.items() if word not in DONE]
    if refused:
        message = "; ".join(error.message for error in refused)
        raise ClientError(message, hint=refused[0].hint, code=refused[0].code)


def _refusal(acted: Acted, job_id: int) -> ClientError:
    # Sentences about endings do without the models.
    from forge_schema.model.fields import MOST_TAGS  # noqa: PLC0415
    from forge_schema.model.job import job_unknown  # noqa: PLC0415

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
