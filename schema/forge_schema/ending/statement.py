"""The parameters of `finish`, which ends leases for any reason."""

from collections.abc import Sequence

from forge_schema.ending.hopeless import QUICK, VARYING, hopeless
from forge_schema.model.lease import End, fences, usages
from forge_schema.model.states import Budget, Reason

DETAIL_LENGTH = 10_000
# Reasons to retry at once: the job is healthy and can run on another worker.
AT_ONCE = {Reason.WORKER_LOST, Reason.GPU_FAULT, Reason.PREEMPTED, Reason.DRAINED, Reason.RUN_ENDED}


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
