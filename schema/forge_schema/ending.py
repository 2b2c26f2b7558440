"""The end of a lease, and of a run of several machines: each member ends on its own.

The last member settles the run. The first end that the database hears of need not be the cause:
when a machine dies, the others notice within a second, and its lease runs out two minutes later.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from signal import SIGTERM

import psycopg
import structlog
from psycopg.types.json import Jsonb

from forge_schema.database.pool import DatabaseUser, Row
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import (
    NAMES_RANK,
    End,
    Ended,
    Fence,
    Usage,
    by_job,
    fence_params,
    fences,
    usages,
)
from forge_schema.model.quantities import exit_in_words
from forge_schema.model.states import Budget, Reason, State, reason_in_words

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
# make's last words about the program that it ran.
MADE = re.compile(r"g?make(?:\[\d+\])?: \*\*\* \[.*\] Error (\d+)")
SHELL_SYNTAX = re.compile(r".*: syntax error", re.IGNORECASE)
# The last line of a job of many calls, all of which ended as they had in the attempt before.
AS_BEFORE = re.compile(r"\d+ of \d+ tasks failed as before: ")

DETAIL_LENGTH = 10_000
# Reasons to retry at once: the job is healthy and can run on another worker.
AT_ONCE = {Reason.WORKER_LOST, Reason.GPU_FAULT, Reason.PREEMPTED, Reason.DRAINED, Reason.RUN_ENDED}
# How long the machines of a run that lost a member are kept for its next one.
KEPT = {"turn": timedelta(minutes=5)}
# A member decides its run only if no other one has a lower level.
CAUSE, LIKELY_ECHO, ECHO = range(3)
# What Gloo, NCCL, torchrun, PyTorch's store and Python's sockets say when another member is gone or
# does not come to a barrier.
GONE = re.compile(
    r"Connection (closed by peer|reset|refused)|Broken pipe|\bEOFError\b"
    r"|ncclRemoteError|Watchdog caught collective|RendezvousClosed"
    # Gloo: "Timed out waiting 1800000ms for recv operation to complete".
    r"|Timed out waiting \d+ ?ms for (recv|send) operation"
    # Gloo and `monitored_barrier`; NCCL's flight recorder.
    r"|monitoredBarrier|Collective operation timeout"
    # PyTorch's store: "wait timeout after 300000ms, keys: /…".
    r"|[Ww]ait timeout after \d+ ?ms|Timed out after \d+ seconds waiting for clients"
    r"|Socket Timeout|failed to recv, got 0 bytes|DistNetworkError|DistStoreError"
)
# As the worker reports it, as a shell does, and as a launcher that exits with Python's return code.
TERMINATED = {-SIGTERM, 128 + SIGTERM, 256 - SIGTERM}

# The run ends by these as it should, so nothing failed first.
AS_WISHED = {Budget.SUCCESS, Budget.CANCEL}

log = structlog.get_logger(__name__)


def hopeless(end: End) -> bool:
    """Tell whether an attempt failed in a way that a retry would only repeat.

    A start that failed is one that the same worker would only repeat.
    """
    if end.reason is Reason.START_FAILED:
        return end.lasting
    if end.reason is not Reason.EXIT_CODE:
        return False
    lines, code = (end.detail or "").splitlines() or [""], end.exit_code
    while len(lines) > 1 and (made := MADE.fullmatch(lines[-1])):
        lines, code = lines[:-1], int(made[1])
    if code in NOT_RUN:
        return not lines[0].startswith(UNPREPARED)
    if code in USAGE_CODES and any(map(USAGE.match, lines)):
        return True
    by_code = {1: (NEVER_LOADED, NO_SCRIPT, NO_PACKAGE), 2: (USAGE_ERROR, NO_SCRIPT, SHELL_SYNTAX)}
    # The job may have survived a traceback that is followed by more output.
    return any(words.match(lines[-1]) for words in by_code.get(code or 0, ()))


def as_before(end: End) -> bool:
    """Tell whether a job of many calls failed for what it had failed for in the attempt before."""
    last = (end.detail or "").rpartition("\n")[2]
    return end.reason is Reason.EXIT_CODE and bool(AS_BEFORE.match(last))


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
        "as_before": [as_before(end) for end in ends],
        "quick": QUICK,
        "varying": VARYING,
        "expired_only": expired_only,
        "settles": settles,
        "first": first,
    }


def storable(detail: str | None) -> str | None:
    """Make a detail storable: it quotes a job's output, which may contain anything."""
    if detail is None:
        return None
    return detail[:DETAIL_LENGTH].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _backs_off(reason: Reason) -> bool:
    return reason.budget in {Budget.FAILURES, Budget.LOSSES} and reason not in AT_ONCE


def level(end: End, *, asked: bool) -> int:
    """Return how likely a member ended because of another one.

    Args:
        end: the member's end.
        asked: whether it had been asked to stop because the run was over.
    """
    if end.reason is Reason.RUN_ENDED:
        return ECHO
    if end.reason is not Reason.EXIT_CODE:
        return CAUSE
    if GONE.search(end.detail or "") or (asked and end.exit_code in TERMINATED):
        return ECHO
    return LIKELY_ECHO if asked else CAUSE


class GangRuns(DatabaseUser):
    """Ends members and settles runs. Every method is idempotent.

    A run that is left unsettled, since its last member's process died or the statement failed, is
    settled by the sweeper.
    """

    def end(self, ends: Sequence[End], *, expired_only: bool = False) -> dict[Fence, Ended]:
        """End those of the leases that are members of runs; the others are left out of the answer.

        The job's state is `running` until all members of its run are over.
        """
        if not ends:
            return {}
        rows = self._database.rows(
            "members_among", again=True, **fences([end.fence for end in ends])
        )
        members = {Fence(**row) for row in rows}
        wanted = [end for end in ends if end.fence in members]
        # One run at a time, so that no two ends wait for each other.
        answers = [self._end(end, expired_only=expired_only) for end in wanted]
        return {
            end.fence: answer
            for end, answer in zip(wanted, answers, strict=True)
            if answer is not None
        }

    def ask(self, fence: Fence) -> None:
        """Ask the other members of this one's run to stop, because it is about to."""
        params = fence_params(fence)
        self._database.together(("lock_run", params), ("ask_members", params))

    def keep(self, fence: Fence) -> None:
        """Have the machines of a run that loses a member keep room for its next one."""
        params = fence_params(fence)
        self._database.together(("lock_run", params), ("keep_members", {**params, **KEPT}))

    def whole(self) -> list[Row]:
        """Return the runs to settle, each as the lease of the member that decides it."""
        return self._database.rows("decisive", again=True, job_ids=None)

    def settle(self, row: Row) -> State | None:
        """Settle one of `whole`; return the job's new state, or None if it was settled before."""
        decisive = _end_of(row)
        params = finish_params([decisive], settles=True, first=_first(decisive, row))
        run = {
            **{name: row[name] for name in ("job_id", "attempt", "token")},
            "interrupted": decisive.reason in AT_ONCE or decisive.reason.budget is Budget.LOSSES,
            "good": decisive.reason is Reason.SUCCEEDED,
            "unreached": decisive.reason is Reason.PREFLIGHT_FAILED,
        }
        # The others go first: `finish` may form the job's next run at once, with the same ranks.
        *_, ended, _ = self._database.together(
            ("lock_run", run),
            ("note_unreached", run),
            ("end_run", run),
            ("finish", params),
            ("settle_kept", {**run, **KEPT, "lost": decisive.reason in AT_ONCE}),
        )
        return State(ended[0]["state"]) if ended else None

    def _end(self, end: End, *, expired_only: bool) -> Ended | None:
        params = {
            **fence_params(end.fence),
            "reason": end.reason.value,
            "exit_code": end.exit_code,
            "detail": storable(end.detail),
            "usage": Jsonb(asdict(end.usage)),
            "level": level(end, asked=False),
            "asked_level": level(end, asked=True),
            "expired_only": expired_only,
        }
        _, rows, _ = self._database.together(
            ("lock_run", params), ("end_member", params), ("keep_members", {**params, **KEPT})
        )
        if not rows:
            return None
        reason = Reason(rows[0]["reason"])
        state = self._settle_now(end.fence.job_id) if rows[0]["whole"] else None
        return Ended(end.fence.job_id, reason is end.reason, reason, state or State.RUNNING)

    def _settle_now(self, job_id: int) -> State | None:
        try:
            rows = self._database.rows("decisive", again=True, job_ids=[job_id])
            return self.settle(rows[0]) if rows else None
        except (psycopg.Error, ForgeError) as error:
            # The end is stored, and the sweeper settles the run.
            log.warning("run_not_settled", job=job_id, error=str(error))
            return None


def _end_of(row: Row) -> End:
    fence = Fence(row["job_id"], row["token"], row["nonce"])
    reason = Reason(row["reason"])
    return End(fence, reason, row["exit_code"], row["detail"], Usage(**row["usage"]))


def _first(decisive: End, row: Row) -> str:
    """Return what the outcome's detail begins with: who ended the run."""
    # What could not be reached, and by whom, is in the detail.
    if decisive.reason.budget in AS_WISHED or decisive.reason is Reason.PREFLIGHT_FAILED:
        return ""
    if NAMES_RANK.match(decisive.detail or ""):
        return ""
    did = "ended" if decisive.reason in AT_ONCE else "failed"
    who = f"rank {row['rank']} on {row['worker']} {did} first: "
    if decisive.detail:
        return who
    if decisive.reason is Reason.EXIT_CODE:
        return who + exit_in_words(decisive.exit_code)
    return who + reason_in_words(decisive.reason)
