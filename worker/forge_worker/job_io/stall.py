"""Stall detection: a job that shows no sign of life for as long as it said itself is stopped.

It is tried again from its last checkpoint; what it did not ask to be watched for, it may do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

import structlog
from forge_schema.model.spec import Stall
from forge_schema.model.states import Reason

from forge_worker.job_io.attempt_usage import Watched
from forge_worker.job_io.liveness import Gpus, Output, Progress
from forge_worker.job_runs.attempt import Attempt, Stop
from forge_worker.loop import Loop

LONGEST_S = 5.0
LOOKS_PER_LIMIT = 10
IDLE = "--stall-idle-gpu"
# The machine, or the agent alone, may have stood still between two looks, and the job with it.
COUNTED_PERIODS = 3

log = structlog.get_logger(__name__)


@dataclass
class Rule:
    """One sign that a job has to show every `limit_s` seconds, and for how long it has not."""

    lack: str
    option: str
    limit_s: float
    sign: Callable[[], bool | None]
    quiet_s: float = 0.0
    unseen_s: float = 0.0

    def stalled(self, passed_s: float, most_s: float) -> bool:
        """Look once, so long after the look before, of which at most `most_s` count."""
        alive = self.sign()
        # While nobody looks, nothing is held against a job, and then only as much as of any pause.
        self.unseen_s += passed_s
        if alive is None:
            return False
        self.quiet_s = 0.0 if alive else self.quiet_s + min(self.unseen_s, most_s)
        self.unseen_s = 0.0
        return self.quiet_s >= self.limit_s


class StallWatch(Loop):
    """Begins to count when it is started: when its job runs, or has been adopted.

    Args:
        attempt: whose job it is.
        rules: of which any one suffices.
        clock: tells the seconds.
    """

    name = "stall"

    def __init__(
        self, attempt: Attempt, rules: list[Rule], clock: Callable[[], float] = monotonic
    ) -> None:
        shortest_s = min(rule.limit_s for rule in rules)
        super().__init__(min(LONGEST_S, shortest_s / LOOKS_PER_LIMIT))
        self._attempt = attempt
        self._rules = rules
        self._clock = clock
        self._looked_at: float | None = None

    def step(self) -> None:
        """Look for each sign, and have the job stopped where one is missing for too long."""
        now = self._clock()
        passed_s = 0.0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        most_s = COUNTED_PERIODS * self.period_s
        late = [rule for rule in self._rules if rule.stalled(passed_s, most_s)]
        if late and not self._attempt.stopping.is_set():
            self._stop(late[0])

    def _stop(self, rule: Rule) -> None:
        said = f"{rule.lack} for {lasting(rule.limit_s)}"
        log.warning("job stalled", job=self._attempt.fence.job_id, why=said)
        self._attempt.note(
            f"stalled: {said}, so the job is stopped, and tried again from its last checkpoint"
            f" while its failures last; if this is how it works, raise or leave out {rule.option}"
        )
        self._attempt.request_stop(Stop(Reason.STALLED, said))


def stall_watches(
    attempt: Attempt, watched: Watched, gpus: int, clock: Callable[[], float] = monotonic
) -> list[StallWatch]:
    """Return the watch that a job asked for, or nothing; `gpus` is how many it was lent."""
    rules = _rules(attempt, watched)
    if not gpus and (idle := [rule for rule in rules if rule.option == IDLE]):
        rules.remove(idle[0])
        attempt.note(f"it was lent no GPU: {IDLE} is ignored")
    return [StallWatch(attempt, rules, clock)] if rules else []


def _rules(attempt: Attempt, watched: Watched) -> list[Rule]:
    asked, rules = wanted(attempt.grant.spec), []
    folders, tell = attempt.folders, attempt.note
    if asked.silent_log_s is not None:
        rules.append(
            Rule("no output", "--stall-silent-log", asked.silent_log_s, Output(folders.log))
        )
    if asked.no_progress_s is not None:
        sign = Progress(folders.metrics)
        rules.append(Rule("no progress told", "--stall-no-progress", asked.no_progress_s, sign))
    if asked.idle_gpu_s is not None:
        percent = asked.idle_gpu_percent
        lack, busy = f"no GPU busier than {percent:g} %", Gpus(watched, percent, tell)
        rules.append(Rule(lack, IDLE, asked.idle_gpu_s, busy))
    return rules


def wanted(spec: Mapping[str, Any]) -> Stall:
    """Return what a job's spec says of stalls; what a newer server adds is left aside."""
    said = spec.get("stall") or {}
    # Checked when it was submitted; one that watches nothing stands for none here.
    return Stall.model_construct(
        **{name: said[name] for name in Stall.model_fields if name in said}
    )


def lasting(seconds: float) -> str:
    """Return a time in words."""
    if seconds < 120:  # noqa: PLR2004 - below, minutes would be fractions
        return f"{seconds:g} s"
    return f"{seconds / 60:.4g} min"
