"""The enums of the protocol: job states, reasons for an attempt's end, budgets, phases."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

W = TypeVar("W", bound=str)
# What a line of metrics says of its job's progress: no metrics.
PROGRESS = frozenset({"step", "total", "progress"})


class State(StrEnum):
    """Where the queue has a job: a view derives it from the table that holds the job.

    People read a `StateWord`.
    """

    SCHEDULED = "scheduled"
    HELD = "held"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD = "dead"

    @property
    def terminal(self) -> bool:
        """Whether a job in this state has ended."""
        return self in TERMINAL_STATES


class StateWord(StrEnum):
    """The state of a job, in the words that everybody reads; its reason or `run_at` says why."""

    QUEUED = "queued"
    HELD = "held"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def states(self) -> tuple[State, ...]:
        """The states that the word stands for."""
        return tuple(state for state in State if in_words(state) == self)

    @property
    def terminal(self) -> bool:
        """Whether a job in this state has ended."""
        return self in (StateWord.SUCCEEDED, StateWord.FAILED, StateWord.CANCELLED)


WORDS: dict[str, StateWord] = {
    State.SCHEDULED: StateWord.QUEUED,
    State.READY: StateWord.QUEUED,
    State.DEAD: StateWord.FAILED,
}


def in_words(state: str) -> str:
    """Return the word that users read for a state."""
    return WORDS.get(state, state)


def in_state(word: str) -> str:
    """Say that a job is in a state, by the word that users read: `is running`, `has failed`."""
    if word in (State.SUCCEEDED, State.FAILED):
        return f"has {word}"
    return f"was {word}" if word == State.CANCELLED else f"is {word}"


def counts_in_words(counts: Mapping[W, int]) -> dict[str, int]:
    """Add up the counts of states that users read as one word."""
    counted: Counter[str] = Counter()
    for state, count in counts.items():
        counted[in_words(state)] += count
    return dict(counted)


TERMINAL_STATES = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.DEAD})
UNFINISHED_STATES = tuple(state for state in State if state not in TERMINAL_STATES)


class Budget(StrEnum):
    """The budget that an ended attempt is charged to, or none."""

    FAILURES = "failures"
    LOSSES = "losses"
    PREEMPTIONS = "preemptions"
    FREE = "free"
    SUCCESS = "success"
    FINAL = "final"
    CANCEL = "cancel"


class Reason(StrEnum):
    """Why an attempt ended, or a job that was never started."""

    SUCCEEDED = "succeeded"
    EXIT_CODE = "exit_code"
    OOM = "oom"
    DISK_FULL = "disk_full"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    BUNDLE_CORRUPT = "bundle_corrupt"
    IMAGE_MISSING = "image_missing"
    START_FAILED = "start_failed"
    PREFLIGHT_FAILED = "preflight_failed"
    STORAGE_FAILED = "storage_failed"
    GPU_FAULT = "gpu_fault"
    WORKER_LOST = "worker_lost"
    PREEMPTED = "preempted"
    DRAINED = "drained"
    RUN_ENDED = "run_ended"
    CANCELLED = "cancelled"
    DEPENDENCY_FAILED = "dependency_failed"

    @property
    def budget(self) -> Budget:
        """The budget that an attempt with this reason is charged to."""
        return BUDGETS[self]


# Reasons whose names do not say it.
REASONS: dict[str, str] = {
    Reason.OOM: "out of memory",
    Reason.GPU_FAULT: "GPU fault",
    Reason.TIMEOUT: "over its time limit",
    Reason.BUNDLE_CORRUPT: "damaged bundle",
    Reason.PREFLIGHT_FAILED: "the machines could not reach each other",
}


def reason_in_words(reason: str | None) -> str:
    """Return what users read for a reason, empty for none."""
    return REASONS.get(reason or "", (reason or "").replace("_", " "))


# A job without its dependency has no attempt.
ATTEMPT_REASONS = tuple(reason for reason in Reason if reason is not Reason.DEPENDENCY_FAILED)

# A failure is the job's fault, a loss the infrastructure's; a final reason would only repeat
# itself, so it is not retried. A faulty GPU is no longer lent, so the job continues on another one
# and cannot do so endlessly. A member of a run that ended because of another one is not charged:
# the other one is.
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
    Reason.PREFLIGHT_FAILED: Budget.LOSSES,
    Reason.STORAGE_FAILED: Budget.LOSSES,
    Reason.GPU_FAULT: Budget.FREE,
    Reason.WORKER_LOST: Budget.LOSSES,
    Reason.PREEMPTED: Budget.PREEMPTIONS,
    Reason.DRAINED: Budget.FREE,
    Reason.RUN_ENDED: Budget.FREE,
    Reason.CANCELLED: Budget.CANCEL,
    Reason.DEPENDENCY_FAILED: Budget.CANCEL,
}


class Phase(StrEnum):
    """What the holder of a lease does now."""

    CLAIMED = "claimed"
    PREPARING = "preparing"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHING = "finishing"


class Asked(StrEnum):
    """Why the holder of a lease is asked to end its job; `ended` if another one ended the run."""

    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    TIMEOUT = "timeout"
    ENDED = "ended"


class Standing(StrEnum):
    """The status of one lease in the answer to a renewal."""

    OK = "ok"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    TIMEOUT = "timeout"
    ENDED = "ended"
    LOST = "lost"


class WorkerKind(StrEnum):
    """Whether a worker exits after one job or stays."""

    EPHEMERAL = "ephemeral"
    PERSISTENT = "persistent"


class WorkerStatus(StrEnum):
    """What a worker is doing; `offline` is set by the sweeper or by a disconnect.

    A `constrained` worker continues its jobs but takes no more until its machine has room again.
    """

    CONNECTING = "connecting"
    IDLE = "idle"
    BUSY = "busy"
    CONSTRAINED = "constrained"
    DRAINING = "draining"
    OFFLINE = "offline"


class Command(StrEnum):
    """What a worker as a whole is asked to do, sent in the answer to a renewal."""

    DRAIN = "drain"
    STOP = "stop"


class JobKind(StrEnum):
    """The kind of a job: a command, tests, one point of a benchmark, or a custom handler."""

    COMMAND = "command"
    TEST = "test"
    BENCHMARK = "benchmark"
    CUSTOM = "custom"


class DependencyKind(StrEnum):
    """What a job waits for: that another job has begun, has succeeded, or has ended in any way."""

    AFTER = "after"
    AFTER_OK = "after_ok"
    AFTER_ANY = "after_any"


class WaitsFor(StrEnum):
    """What keeps a job held: other jobs, an admin's approval, or, after these, its turn."""

    JOBS = "jobs"
    APPROVAL = "approval"
    TURN = "turn"


class YesNo(StrEnum):
    """The answer to a question of a filter."""

    YES = "yes"
    NO = "no"


class Verdict(StrEnum):
    """The result of one test, in JUnit's terms."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"


class Role(StrEnum):
    """What a caller of the HTTP functions may do: everything, or only with one owner's jobs."""

    ADMIN = "admin"
    SUBMITTER = "submitter"
    VIEWER = "viewer"


class Launcher(StrEnum):
    """What starts the program of a job on several machines; `none` only sets variables."""

    TORCHRUN = "torchrun"
    ACCELERATE = "accelerate"
    DEEPSPEED = "deepspeed"
    MPIRUN = "mpirun"
    RAY = "ray"
    NONE = "none"

    @property
    def starts_alone(self) -> bool:
        """Whether it also starts a job on one machine, with a process for each of its GPUs."""
        return self in {Launcher.TORCHRUN, Launcher.ACCELERATE, Launcher.DEEPSPEED}

    def on_one_machine(self, gpus: int, command: Sequence[str]) -> str:
        """Return a hint for a command that is to start it on one machine; empty if it cannot."""
        if self is not Launcher.MPIRUN:
            return ""
        program = next((word for word in command if word.endswith(".py")), "PROGRAM")
        start = f"mpirun -np {gpus or 'N'}"
        return f"; on one machine, let the command start it: -- {start} {program}"


class NotificationKind(StrEnum):
    """How a notification is sent: a signed webhook, a message of Slack's format, or an e-mail."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    EMAIL = "email"


class Occasion(StrEnum):
    """What a notification can tell of; what workers do is for admins."""

    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STALLED = "stalled"
    APPROVAL = "approval"
    WORKER_OFFLINE = "worker_offline"
    WORKER_SUSPECTED = "worker_suspected"


OF_WORKERS = (Occasion.WORKER_OFFLINE, Occasion.WORKER_SUSPECTED)


class Target(StrEnum):
    """Where a job may run: on workers, on the submitter's machine, or on either."""

    AUTO = "auto"
    WORKER = "worker"
    LOCAL = "local"
