"""Watches that stop a job: one without a sign of life, and one that exceeds its disk request.

Signs of life are output, reported progress, and busy GPUs; only the rules that the job sets apply.
A stalled job is retried from its last checkpoint.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import monotonic, thread_time
from typing import Any

import structlog
from forge_schema.model.quantities import MIB, duration_text, size_text
from forge_schema.model.spec import Stall
from forge_schema.model.states import Reason

from forge_worker.attempt import LiveAttempt, Stop
from forge_worker.job_io.metrics_file import MetricsFile, parse, progress_of, step_of
from forge_worker.job_io.usage import AttemptUsage
from forge_worker.loop import Loop

# A file that was replaced, and the one in its place.
LOOKS = 2
LONGEST_S = 5.0
LOOKS_PER_LIMIT = 10
IDLE = "--stall-idle-gpu"
# If the machine or the agent was suspended between two looks, only this many periods count.
COUNTED_PERIODS = 3
DISK_PERIOD_S, LONGEST_DISK_S = 2.0, 60.0
# While the whole disk loses less than this share of what is left to the job, it is measured this
# often. Others may free as much as it writes, so the disk does not tell everything.
DISK_SHARE, DISK_QUIET_S = 0.25, 10.0
# A look at 100,000 files takes a good part of a second: the next one waits this many times as long.
DISK_PAUSE = 20.0

log = structlog.get_logger(__name__)


class OutputSign:
    """Whether the log has grown."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._size = 0

    def __call__(self) -> bool:
        before, self._size = self._size, self._log.stat().st_size
        return self._size != before


class ProgressSign:
    """Whether the step or the progress rose; a counter that fell has restarted.

    It reads the metrics file itself, since the queue may be unreachable.
    """

    def __init__(self, metrics: Path) -> None:
        self._file = MetricsFile(metrics, remembers=False)
        self._looked = False
        self._last: dict[str, float] = {}

    def __call__(self) -> bool:
        if not self._looked:
            # Earlier lines were seen by an earlier agent.
            self._looked = True
            self._file.skip()
            return False
        # For a large file, the end is enough. Every line counts, also after one that rises.
        looks = (self._file.look(leap=True) for _ in range(LOOKS))
        lines = [line.data for block in looks if block is not None for line in block.lines]
        return sum(map(self._rises, lines)) > 0

    def _rises(self, line: bytes) -> bool:
        if (values := parse(line)) is None:
            return False
        progress = {"step": step_of(values), "progress": progress_of(values)}
        known = {name: value for name, value in progress.items() if value is not None}
        risen = any(value > self._last.get(name, -inf) for name, value in known.items())
        self._last |= known
        return risen


class GpuSign:
    """Whether a GPU was busier than a percentage; one with unknown use counts as busy."""

    def __init__(self, usage: AttemptUsage, percent: float, tell: Callable[[str], None]) -> None:
        self._watched = usage
        self._percent = percent
        self._tell = tell
        self._warned = False

    def __call__(self) -> bool | None:
        looks = self._watched.busiest()
        if None in looks:
            self._tell_once("its GPUs do not report their utilisation: --stall-idle-gpu is ignored")
            return True
        known = [percent for percent in looks if percent is not None]
        return max(known) > self._percent if known else None

    def _tell_once(self, words: str) -> None:
        if not self._warned:
            self._warned = True
            self._tell(words)


@dataclass
class Rule:
    """A sign that a job must show every `limit_s` seconds, and the time since the last one."""

    lack: str
    option: str
    limit_s: float
    sign: Callable[[], bool | None]
    quiet_s: float = 0.0
    unseen_s: float = 0.0

    def stalled(self, passed_s: float, most_s: float) -> bool:
        """Look once, `passed_s` after the previous look, of which at most `most_s` count."""
        alive = self.sign()
        # Time without a look counts only up to the usual limit.
        self.unseen_s += passed_s
        if alive is None:
            return False
        self.quiet_s = 0.0 if alive else self.quiet_s + min(self.unseen_s, most_s)
        self.unseen_s = 0.0
        return self.quiet_s >= self.limit_s


class StallWatch(Loop):
    """Counts from its start: when its job runs, or has been adopted."""

    name = "stall"

    def __init__(
        self, attempt: LiveAttempt, rules: list[Rule], clock: Callable[[], float] = monotonic
    ) -> None:
        shortest_s = min(rule.limit_s for rule in rules)
        super().__init__(min(LONGEST_S, shortest_s / LOOKS_PER_LIMIT))
        self._attempt = attempt
        self._rules = rules
        self._clock = clock
        self._looked_at: float | None = None
        self.wake()

    def step(self) -> None:
        """Look for each sign, and stop the job if one has been missing for too long."""
        now = self._clock()
        passed_s = 0.0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        most_s = COUNTED_PERIODS * self.period_s
        late = [rule for rule in self._rules if rule.stalled(passed_s, most_s)]
        if late and not self._attempt.stopping.is_set():
            self._stop(late[0])

    def _stop(self, rule: Rule) -> None:
        lack = f"{rule.lack} for {duration_text(rule.limit_s)}"
        log.warning("job_stalled", job=self._attempt.fence.job_id, why=lack)
        self._attempt.note(
            f"stalled: {lack}, so the job was stopped; it is retried from its last checkpoint if it"
            f" has retries left; if this is normal for the job, raise or remove {rule.option}"
        )
        self._attempt.request_stop(Stop(Reason.STALLED, lack))


def stall_watches(
    attempt: LiveAttempt, usage: AttemptUsage, gpus: int, clock: Callable[[], float] = monotonic
) -> list[StallWatch]:
    """Return the watch that a job requests, if any; `gpus` is how many it was lent."""
    rules = _rules(attempt, usage)
    if not gpus and (idle := [rule for rule in rules if rule.option == IDLE]):
        rules.remove(idle[0])
        attempt.note(f"the job has no GPU: {IDLE} is ignored")
    return [StallWatch(attempt, rules, clock)] if rules else []


def _rules(attempt: LiveAttempt, usage: AttemptUsage) -> list[Rule]:
    asked, rules = stall_rules_of(attempt.grant.spec), []
    folders, tell = attempt.folders, attempt.note
    if asked.silent_log_s is not None:
        rules.append(
            Rule("no output", "--stall-silent-log", asked.silent_log_s, OutputSign(folders.log))
        )
    if asked.no_progress_s is not None:
        sign = ProgressSign(folders.metrics)
        rules.append(Rule("no progress reported", "--stall-no-progress", asked.no_progress_s, sign))
    if asked.idle_gpu_s is not None:
        percent = asked.idle_gpu_percent
        lack, busy = f"no GPU busier than {percent:g}%", GpuSign(usage, percent, tell)
        rules.append(Rule(lack, IDLE, asked.idle_gpu_s, busy))
    return rules


def stall_rules_of(spec: Mapping[str, Any]) -> Stall:
    """Return the stall rules in a job's spec, ignoring those of newer servers."""
    rules = spec.get("stall") or {}
    # Validated at submission; rules that watch nothing are allowed here.
    return Stall.model_construct(
        **{name: rules[name] for name in Stall.model_fields if name in rules}
    )


class DiskWatch(Loop):
    """Measures the attempt's folders, including the log, and installations made for it.

    The more CPU time that takes, the longer it pauses.
    """

    name = "disk"

    def __init__(
        self, attempt: LiveAttempt, limit_mb: int, clock: Callable[[], float] = thread_time
    ) -> None:
        super().__init__(DISK_PERIOD_S)
        self._attempt = attempt
        self._limit_mb = limit_mb
        self._clock = clock
        self._root = str(attempt.folders.root)
        # The time of the last look, what the whole disk had free then, and what the job had left.
        self._looked_at = float("-inf")
        self._free_bytes = self._left_bytes = 0

    def idle(self) -> bool:
        if monotonic() - self._looked_at >= DISK_QUIET_S:
            return False
        return self._free_bytes - self._free() < DISK_SHARE * self._left_bytes

    def step(self) -> None:
        began, self._looked_at, self._free_bytes = self._clock(), monotonic(), self._free()
        used = self._attempt.bytes_used()
        used_mb, self._left_bytes = used >> 20, (self._limit_mb << 20) - used
        self.period_s = min(
            LONGEST_DISK_S, max(DISK_PERIOD_S, DISK_PAUSE * (self._clock() - began))
        )
        if used_mb > self._limit_mb:
            detail = (
                f"{size_text(used_mb * MIB)} on disk, {size_text(self._limit_mb * MIB)} requested"
            )
            self._attempt.request_stop(Stop(Reason.DISK_FULL, detail))

    def _free(self) -> int:
        disk = os.statvfs(self._root)
        return disk.f_bfree * disk.f_frsize
