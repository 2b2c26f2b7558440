"""The words of the protocol: job states, reasons why an attempt ended, budgets, phases."""

from enum import StrEnum


class State(StrEnum):
    """Where a job is; a view derives it from the thin table that holds the job."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD = "dead"

    @property
    def terminal(self) -> bool:
        """Whether a job in this state has its outcome."""
        return self in TERMINAL_STATES


TERMINAL_STATES = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.DEAD})


class Budget(StrEnum):
    """What an ended attempt costs its job, or where it ends it."""

    FAILURES = "failures"
    LOSSES = "losses"
    PREEMPTIONS = "preemptions"
    FREE = "free"
    SUCCESS = "success"
    FINAL = "final"
    CANCEL = "cancel"


class Reason(StrEnum):
    """Why an attempt ended."""

    SUCCEEDED = "succeeded"
    EXIT_CODE = "exit_code"
    OOM = "oom"
    DISK_FULL = "disk_full"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    BUNDLE_CORRUPT = "bundle_corrupt"
    IMAGE_MISSING = "image_missing"
    START_FAILED = "start_failed"
    STORAGE_FAILED = "storage_failed"
    GPU_FAULT = "gpu_fault"
    WORKER_LOST = "worker_lost"
    PREEMPTED = "preempted"
    DRAINED = "drained"
    CANCELLED = "cancelled"

    @property
    def budget(self) -> Budget:
        """The budget that an attempt ended by this reason is charged to."""
        return BUDGETS[self]


# A failure is the job's own fault, a loss the infrastructure's; a final reason
# would only repeat itself, so it is not retried. A GPU that faults is lent no more, so the job
# goes on elsewhere, and there is an end to that.
BUDGETS = {
    Reason.SUCCEEDED: Budget.SUCCESS,
    Reason.EXIT_CODE: Budget.FAILURES,
    Reason.OOM: Budget.FAILURES,
    Reason.DISK_FULL: Budget.FAILURES,
    Reason.TIMEOUT: Budget.FINAL,
    Reason.STALLED: Budget.FAILURES,
    Reason.BUNDLE_CORRUPT: Budget.FINAL,
    Reason.IMAGE_MISSING: Budget.FINAL,
    Reason.START_FAILED: Budget.LOSSES,
    Reason.STORAGE_FAILED: Budget.LOSSES,
    Reason.GPU_FAULT: Budget.FREE,
    Reason.WORKER_LOST: Budget.LOSSES,
    Reason.PREEMPTED: Budget.PREEMPTIONS,
    Reason.DRAINED: Budget.FREE,
    Reason.CANCELLED: Budget.CANCEL,
}


class Phase(StrEnum):
    """What the holder of a lease is doing."""

    CLAIMED = "claimed"
    PREPARING = "preparing"
    RUNNING = "running"
    FINISHING = "finishing"


class Asked(StrEnum):
    """What the holder of a lease is asked to end its job for."""

    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    TIMEOUT = "timeout"


class Standing(StrEnum):
    """What a renewal answers for one lease."""

    OK = "ok"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    TIMEOUT = "timeout"
    LOST = "lost"


class WorkerKind(StrEnum):
    """Whether a worker leaves after one job or stays."""

    EPHEMERAL = "ephemeral"
    PERSISTENT = "persistent"


class WorkerStatus(StrEnum):
    """What a worker is doing; `offline` is set by the sweeper or by a disconnect.

    `constrained` runs what it has, and takes no more until its machine has room again.
    """

    CONNECTING = "connecting"
    IDLE = "idle"
    BUSY = "busy"
    CONSTRAINED = "constrained"
    DRAINING = "draining"
    OFFLINE = "offline"


class Command(StrEnum):
    """What a worker as a whole is asked to do; a renewal tells it."""

    DRAIN = "drain"
    STOP = "stop"


class JobKind(StrEnum):
    """What a job is: a command, tests with a result each, one point of a benchmark, a handler."""

    COMMAND = "command"
    TEST = "test"
    BENCHMARK = "benchmark"
    CUSTOM = "custom"


class Verdict(StrEnum):
    """How one test ended, in JUnit's words."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"


class Role(StrEnum):
    """What a caller of the HTTP functions may do: everything, or with the jobs of one owner."""

    ADMIN = "admin"
    SUBMITTER = "submitter"
    VIEWER = "viewer"


class Target(StrEnum):
    """Where a job may run: on workers, on the submitter's machine, or on either."""

    AUTO = "auto"
    WORKER = "worker"
    LOCAL = "local"
