"""How attempts and jobs ended, in a sentence."""

from forge_schema.model.job import Attempt, JobDetail, JobStatus
from forge_schema.model.quantities import duration_text

# What the machines did; the job goes on by itself.
INTERRUPTIONS = {"worker_lost", "preempted", "drained", "gpu_fault"}
# These are charged to the retries that a user grants.
FAILURES = {"exit_code", "oom", "disk_full", "stalled"}
WORDS = {
    "oom": "out of memory",
    "gpu_fault": "GPU fault",
    "timeout": "over its time limit",
    "bundle_corrupt": "damaged bundle",
}
TWICE = "failed the same way twice"


def reason_in_words(reason: str | None) -> str:
    """Return why something ended, as people say it."""
    return WORDS.get(reason or "", (reason or "").replace("_", " "))


def first_line(detail: str | None) -> str:
    """Return the line of a detail that says it all; the last lines of the output follow it."""
    return (detail or "").split("\n", 1)[0]


def ending(status: JobStatus) -> str:
    """Return how a job stands in one sentence."""
    state = {"dead": "failed", "cancelled": "was cancelled"}.get(status.state, status.state)
    said = [f"job {status.job_id} {status.name!r} {state}"]
    if status.terminal and status.state not in ("succeeded", "cancelled"):
        said[0] += f" after {_times(status.attempt, 'attempt')}"
        said += [_why(status), first_line(status.detail)]
    told = ": ".join(filter(None, said))
    return f"{told}; a retry would fail again" if _hopeless(status) else told


def _why(status: JobStatus) -> str:
    if status.reason == "exit_code":
        return f"exit code {status.exit_code}"
    code = f" (exit code {status.exit_code})" if status.exit_code else ""
    return f"{reason_in_words(status.reason)}{code}"


def _hopeless(status: JobStatus) -> bool:
    final = status.state == "failed" and status.reason == "exit_code"
    return final and not (status.detail or "").startswith(TWICE)


def attempt_ending(ended: Attempt) -> str:
    """Return how an attempt ended, and after how long."""
    began = ended.started_at or ended.claimed_at
    after = f"after {duration_text((ended.finished_at - began).total_seconds())}"
    return f"attempt {ended.attempt} {_happened(ended)} {after}"


def _happened(ended: Attempt) -> str:
    reason = ended.reason
    if reason in ("succeeded", "cancelled"):
        return {"cancelled": "was cancelled"}.get(reason, reason)
    if reason in INTERRUPTIONS:
        return f"was interrupted ({reason_in_words(reason)})"
    if reason == "exit_code":
        return f"failed with exit code {ended.exit_code}"
    return f"failed ({reason_in_words(reason)})"


def what_follows(status: JobDetail, reason: str) -> str:
    """Return when a job that waits after an attempt is tried again, and how often it may be."""
    if reason in INTERRUPTIONS:
        return "waiting for a worker to continue"
    when = "now"
    if status.state == "scheduled" and status.due_in_s is not None:
        when = f"in {duration_text(max(0.0, status.due_in_s))}"
    left = status.retries_left
    if reason not in FAILURES or left is None:
        return f"retrying {when}"
    # Beyond the retry that is told of.
    return f"retrying {when} ({_times(left, 'retry', 'retries')} left)"


def _times(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or f'{one}s'}"
