"""The parameters of `finish`, which ends leases for any reason, and failures not worth a retry.

Those are recognised by exit code and last lines of output, and only in a quick attempt of a job
that never made progress: a failure hours into a training run is not a typo, whatever its message.
"""

import re
from collections.abc import Sequence
from datetime import timedelta

from forge_schema.model.lease import End, fences, usages
from forge_schema.model.states import Budget, Reason

# Longer attempts have made progress; the cold start of a large framework is shorter.
QUICK = timedelta(seconds=60)
# Text that differs between two runs with the same end: numbers, times, addresses, temporary names.
VARYING = r"\ytmp\w+|[0-9a-f]*[0-9][0-9a-f]*"
NOT_RUN = {126, 127}
# A worker's message when it could not start the job. Another worker may be able to.
UNPREPARED = "cannot prepare the job"
# Exit codes of argparse, click, getopt and pytest for a usage error.
USAGE_CODES = {2, 4, 64}
USAGE = re.compile(r"(error: )?usage: ", re.IGNORECASE)
USAGE_ERROR = re.compile(r"\S+: error: ")
NEVER_LOADED = re.compile(
    r"(ModuleNotFound|Import|Syntax|Indentation|Tab)Error: |\S*python\S*: No module named "
    r"|\S*python\S*: Error while finding module specification for "
)
NO_SCRIPT = re.compile(r"\S*python\S*: can't (open file|find '__main__' module)")
# pip's words, through a worker, for a package that is in none of its indexes.
NO_PACKAGE = re.compile(r"installing .+: ERROR: .+ \(from versions: none\)")
SHELL_SYNTAX = re.compile(r".*: syntax error", re.IGNORECASE)

DETAIL_LENGTH = 10_000
# Reasons to retry at once: the job is healthy and can run on another worker.
AT_ONCE = {Reason.WORKER_LOST, Reason.GPU_FAULT, Reason.PREEMPTED, Reason.DRAINED, Reason.RUN_ENDED}


def hopeless(end: End) -> bool:
    """Tell whether an attempt failed in a way that a retry would only repeat.

    A start that failed is one that the same worker would only repeat.
    """
    if end.reason is Reason.START_FAILED:
        return end.lasting
    if end.reason is not Reason.EXIT_CODE:
        return False
    lines = (end.detail or "").splitlines() or [""]
    if end.exit_code in NOT_RUN:
        return not lines[0].startswith(UNPREPARED)
    if end.exit_code in USAGE_CODES and any(map(USAGE.match, lines)):
        return True
    by_code = {1: (NEVER_LOADED, NO_SCRIPT, NO_PACKAGE), 2: (USAGE_ERROR, NO_SCRIPT, SHELL_SYNTAX)}
    # The job may have survived a traceback that is followed by more output.
    return any(words.match(lines[-1]) for words in by_code.get(end.exit_code or 0, ()))


def finish_params(
    ends: Sequence[End], *, expired_only: bool = False, settles: bool = False, first: str = ""
) -> dict[str, object]:
    """Return the parameters of `finish` for some ends, in the order in which it locks leases.

    Args:
        ends: the leases, each with the reason for its attempt's end.
        expired_only: whether to end only leases that have expired.
        settles: whether the end is of the member that decides a run, all of whose members are over.
        first: what the outcome's detail begins with.
    """
    ends = sorted(ends, key=by_job)
    return {
        **fences([end.fence for end in ends]),
        **usages(ends),
        "reasons": [end.reason.value for end in ends],
        "budgets": [end.reason.budget.value for end in ends],
        "back_off": [_backs_off(end.reason) for end in ends],
        "exit_codes": [end.exit_code for end in ends],
        "details": [storable(end.detail) for end in ends],
        "hopeless": [hopeless(end) for end in ends],
        "quick": QUICK,
        "varying": VARYING,
        "expired_only": expired_only,
        "settles": settles,
        "first": first,
    }


def by_job(end: End) -> tuple[int, int]:
    """Return the key of the order in which every statement locks leases."""
    return end.fence.job_id, end.fence.token


def storable(detail: str | None) -> str | None:
    """Make a detail storable: it quotes a job's output, which may contain anything."""
    if detail is None:
        return None
    return detail[:DETAIL_LENGTH].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _backs_off(reason: Reason) -> bool:
    return reason.budget in {Budget.FAILURES, Budget.LOSSES} and reason not in AT_ONCE
