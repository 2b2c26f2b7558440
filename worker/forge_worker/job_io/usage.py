"""The usage of each attempt: measure its GPUs and processes, and send samples."""

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

import structlog
from forge_schema.model.attempt_records import Sample, Samples
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import Usage

from forge_worker.attempt import LiveAttempt
from forge_worker.files.small_files import write_atomically
from forge_worker.loop import Loop
from forge_worker.machine.gpu_health import GpuLook, GpuMeter
from forge_worker.queue.gateway import Gateway
from forge_worker.runners.process.descendants import JobUse

if TYPE_CHECKING:
    from forge_worker.runners.runner import Handle


# Most samples that wait for the queue. No number may be skipped, so further ones are dropped.
UNSENT = 4000
# Most looks kept for the stall watch, which few jobs use; older ones are dropped.
LOOKS = 600
FILE = "usage.json"
# A container cannot be measured after its end, so at most this much of its use is unknown.
LOOK_S = 1.0
LAST_LOOK_S = 5.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class GpuTally:
    """One GPU's part: joules, peak memory in MiB, and its newest look, at seconds of a clock.

    `energy_j` is None until the GPU reports its energy or its power.
    """

    energy_j: float | None = None
    peak_mb: int | None = None
    last: GpuLook = field(default_factory=GpuLook)
    counted_j: float | None = None
    drawn_w: float | None = None
    at: float = 0.0

    def take(self, look: GpuLook, now: float) -> None:
        """Add the use since the previous look."""
        self.last = look
        if look.memory_mb is not None:
            self.peak_mb = max(self.peak_mb or 0, look.memory_mb)
        if look.energy_j is None and look.power_w is None:
            return
        self.energy_j = (self.energy_j or 0.0) + self._since(look, now)
        self.counted_j, self.drawn_w, self.at = look.energy_j, look.power_w, now

    def _since(self, look: GpuLook, now: float) -> float:
        if look.energy_j is not None and self.counted_j is not None:
            # A counter that fell has restarted from zero.
            more = look.energy_j - self.counted_j
            return more if more >= 0 else look.energy_j
        if look.power_w is not None and self.drawn_w is not None:
            return (now - self.at) * (look.power_w + self.drawn_w) / 2
        return 0.0


class UsageMeter:
    """Sums up looks into total and current use."""

    def __init__(self, gpus: Sequence[str]) -> None:
        self._gpus = {uuid: GpuTally() for uuid in gpus}
        self._cpu_seconds: float | None = None
        self._peak_memory: float | None = None
        self._use: JobUse | None = None

    def take(self, looks: Mapping[str, GpuLook], use: JobUse | None, now: float) -> None:
        """Add one look, taken at `now` seconds; unknown values are left out."""
        for uuid, look in looks.items():
            self._gpus[uuid].take(look, now)
        if use is not None:
            self._use = use
            self._cpu_seconds = max(self._cpu_seconds or 0.0, use.cpu_seconds)
            self._peak_memory = max(self._peak_memory or 0.0, use.peak_memory_mb)

    def usage(self, held_s: float, money_per_second: float) -> Usage:
        """Return the total use of an attempt that held its GPUs for `held_s` seconds."""
        joules = [tally.energy_j for tally in self._gpus.values()]
        known = [j for j in joules if j is not None]
        peaks = [tally.peak_mb for tally in self._gpus.values() if tally.peak_mb is not None]
        return Usage(
            gpu_seconds=held_s * len(self._gpus),
            # A sum over some GPUs would be mistaken for the total.
            energy_j=sum(known) if known and len(known) == len(joules) else None,
            cost=held_s * money_per_second if money_per_second else None,
            cpu_seconds=self._cpu_seconds,
            peak_memory_mb=None if self._peak_memory is None else round(self._peak_memory),
            peak_vram_mb=max(peaks, default=None),
        )

    def values(self) -> dict[str, Any]:
        """Return the newest look as the values of a sample."""
        gpus = {uuid: tally.last.reported() for uuid, tally in self._gpus.items()}
        values: dict[str, Any] = {"gpus": gpus} if gpus else {}
        if self._use is not None:
            values["cpu_seconds"] = round(self._use.cpu_seconds, 3)
            # What has ended has no memory, which would be drawn as a fall to nothing.
            if self._use.memory_mb:
                values["memory_mb"] = round(self._use.memory_mb)
        return values

    def kept(self) -> dict[str, Any]:
        """Return what a later agent needs to continue, for JSON."""
        tallies = {
            uuid: {"energy_j": t.energy_j, "peak_mb": t.peak_mb, "counted_j": t.counted_j}
            for uuid, t in self._gpus.items()
        }
        return {"cpu_seconds": self._cpu_seconds, "memory": self._peak_memory, "gpus": tallies}

    def go_on(self, kept: Mapping[str, Any]) -> None:
        """Continue from what an earlier agent kept.

        Raises:
            KeyError, TypeError: it was not returned by `kept`.
        """
        for uuid in self._gpus.keys() & kept["gpus"].keys():
            self._gpus[uuid] = GpuTally(**kept["gpus"][uuid])
        self._cpu_seconds, self._peak_memory = kept["cpu_seconds"], kept["memory"]


class AttemptUsage:
    """The usage of one attempt; `handle` is its job once that has been started."""

    def __init__(
        self, attempt: LiveAttempt, gpus: Sequence[str], meter: GpuMeter, clock: Callable[[], float]
    ) -> None:
        self.attempt = attempt
        self.handle: Handle | None = None
        self._gpus = tuple(gpus)
        self._meter = meter
        self._clock = clock
        self._usage = UsageMeter(gpus)
        self._unsent: deque[Sample] = deque()
        self._busiest: deque[float | None] = deque(maxlen=LOOKS)
        self._number = 0
        self._sampled_at = float("-inf")
        self._looking = Lock()
        self._sending = Lock()
        self._go_on()

    def look(self, sample_s: float | None = None) -> bool:
        """Look once, and add a sample if the last is `sample_s` seconds old; return whether it did.

        None is for the last look: a job too short for a sample gets none. A job that has ended is
        not looked at: its GPUs may serve another.
        """
        with self._looking:
            if self.attempt.over:
                return False
            now = self._clock()
            late = sample_s is None or now - self._sampled_at >= sample_s
            use = self._used(late=late)
            looks = self._meter.look(self._gpus)
            self._busiest.append(self._most_used(looks))
            self._usage.take(looks, use, now)
            due = self._number > 0 if sample_s is None else late
            values = self._usage.values()
            if due := due and bool(values) and len(self._unsent) < UNSENT:
                self._sampled_at = now
                self._unsent.append(Sample(self._number, values))
                self._number += 1
        return due

    def _used(self, *, late: bool) -> JobUse | None:
        """Return the job's use; between samples None if nothing of it is lost that way."""
        if self.handle is None or (self.handle.remembers and not late):
            return None
        return self.handle.used()

    @property
    def at_hand(self) -> bool:
        """Whether no driver and no engine is asked for the use of a job that has ended."""
        return not self._gpus and self.handle is not None and self.handle.remembers

    def busiest(self) -> list[float | None]:
        """Return the busiest GPU's utilisation in percent at each look since the last call.

        None stands for a look at which a GPU did not report it.
        """
        looks: list[float | None] = []
        with suppress(IndexError):
            while True:
                looks.append(self._busiest.popleft())
        return looks

    def _most_used(self, looks: Mapping[str, GpuLook]) -> float | None:
        used = [look.utilisation for look in looks.values()]
        known = [percent for percent in used if percent is not None]
        return max(known) if known and len(known) == len(self._gpus) else None

    def send(self, gateway: Gateway) -> None:
        """Send unsent samples; those that fail are sent again.

        Raises:
            ForgeError: the queue did not answer.
        """
        with self._sending:
            while (samples := list(self._unsent)) and not self.attempt.lost:
                if not gateway.record(self.attempt.fence, Samples(samples)):
                    self.attempt.lose()
                for _ in samples:
                    self._unsent.popleft()
                # The folder of a lost attempt may be being removed.
                if not self.attempt.lost:
                    self._keep(samples[-1].number + 1)

    def usage(self, held_s: float, money_per_second: float) -> Usage:
        """Return the total use up to the last look."""
        return self._usage.usage(held_s, money_per_second)

    def _keep(self, number: int) -> None:
        # Without it, a later agent counts less; nothing else depends on it.
        with suppress(OSError):
            kept = json.dumps({"next": number, **self._usage.kept()})
            write_atomically(self.attempt.folders.root / FILE, kept, durable=False)

    def _go_on(self) -> None:
        file = self.attempt.folders.root / FILE
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            kept = json.loads(file.read_text(encoding="utf-8"))
            self._usage.go_on(kept)
            self._number = int(kept["next"])


class Sampler(Loop):
    """Looks at all attempts; a driver or an engine that hangs blocks only this loop."""

    name = "sample"
    shares = True

    def __init__(
        self,
        gateway: Gateway,
        meter: GpuMeter,
        *,
        sample_s: float,
        money_per_second: float = 0.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(min(LOOK_S, sample_s))
        self._gateway = gateway
        self._meter = meter
        self._sample_s = sample_s
        self._clock = clock
        self._money_per_second = money_per_second
        self._watched: list[AttemptUsage] = []
        # By fencing token, until the attempt is forgotten.
        self._known: dict[int, AttemptUsage] = {}
        self._lock = Lock()
        self.shipper = SampleShipper(gateway, self._all, sample_s)

    def begin(self) -> None:
        super().begin()
        self.shipper.begin()

    def idle(self) -> bool:
        return not self._watched

    def end(self, patience_s: float | None = None) -> None:
        super().end(patience_s)
        self.shipper.end(patience_s)

    def watch(self, attempt: LiveAttempt, gpus: Sequence[str]) -> AttemptUsage:
        """Start measuring an attempt, until it is let go."""
        attempt_usage = AttemptUsage(attempt, gpus, self._meter, self._clock)
        with self._lock:
            self._watched.append(attempt_usage)
            self._known[attempt.fence.token] = attempt_usage
        if gpus:
            # The job has not begun: only its GPUs can be measured.
            self.wake()
        return attempt_usage

    def let_go(self, attempt_usage: AttemptUsage) -> None:
        """Stop measuring an attempt. May be repeated."""
        with self._lock, suppress(ValueError):
            self._watched.remove(attempt_usage)

    def used(self, attempt: LiveAttempt) -> Usage:
        """Return an attempt's total use up to the last look."""
        with self._lock:
            known = self._known.get(attempt.fence.token)
        if known is None:
            return Usage()
        return known.usage(attempt.held_s, self._money_per_second)

    def forget(self, attempt: LiveAttempt) -> None:
        """Forget an attempt's use: its end is delivered or spooled."""
        with self._lock:
            self._known.pop(attempt.fence.token, None)

    def last_look(self, attempt_usage: AttemptUsage) -> None:
        """Look a last time, and stop measuring. Errors are ignored: the end must not wait."""
        self.let_go(attempt_usage)
        if attempt_usage.at_hand:
            self._look(attempt_usage, None)
            return
        look = Thread(target=self._look, args=(attempt_usage, None), name="last look", daemon=True)
        look.start()
        look.join(LAST_LOOK_S)

    def last(self, attempt_usage: AttemptUsage) -> Usage:
        """Try once to send the samples, and return the total use.

        Errors are ignored: the attempt's end must not wait for this.
        """
        attempt = attempt_usage.attempt
        if not attempt.over:
            self.last_look(attempt_usage)
        self._send(attempt_usage)
        return attempt_usage.usage(attempt.held_s, self._money_per_second)

    def step(self) -> None:
        """Look at every attempt."""
        made = [self._look(attempt_usage, self._sample_s) for attempt_usage in self._all()]
        if any(made):
            self.shipper.wake()

    def _look(self, attempt_usage: AttemptUsage, sample_s: float | None) -> bool:
        try:
            return attempt_usage.look(sample_s)
        except Exception:
            # Whatever a driver or an engine answers, the job continues.
            log.warning("sample_failed", job=attempt_usage.attempt.fence.job_id, exc_info=True)
            return False

    def _send(self, attempt_usage: AttemptUsage) -> None:
        try:
            attempt_usage.send(self._gateway)
        except Exception as error:
            # An unreachable queue is logged elsewhere.
            trace = not isinstance(error, ForgeError)
            log.warning("samples_lost", job=attempt_usage.attempt.fence.job_id, exc_info=trace)

    def _all(self) -> list[AttemptUsage]:
        with self._lock:
            return list(self._watched)


class SampleShipper(Loop):
    """Sends the samples in its own thread, so that an unreachable queue does not stop sampling."""

    name = "samples"
    shares = True

    def __init__(
        self, gateway: Gateway, attempt_usage: Callable[[], list[AttemptUsage]], period_s: float
    ) -> None:
        super().__init__(period_s)
        self._gateway = gateway
        self._watched = attempt_usage

    def step(self) -> None:
        for attempt_usage in self._watched():
            attempt_usage.send(self._gateway)
