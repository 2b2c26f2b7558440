"""The usage of each attempt: looks at its GPUs and processes, summed up and sent as samples."""

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock, Thread
from time import monotonic
from typing import Any

import structlog
from forge_schema.model.attempt_records import Sample
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import Usage

from forge_worker.attempt.attempt import Attempt
from forge_worker.clock import seconds
from forge_worker.files.atomic import write_atomically
from forge_worker.loop import Loop
from forge_worker.machine.gpu_meter import GpuLook, GpuMeter
from forge_worker.queue.gateway import Gateway
from forge_worker.runners.runner import Handle
from forge_worker.runners.use import JobUse

# While the queue is away, so many wait at most; no number may be left out, so then none is added.
UNSENT = 4000
# Few ask how busy the GPUs were; for the others, old looks are forgotten.
LOOKS = 600
FILE = "usage.json"
# A container can be asked nothing after its end: so much of it is unknown at most.
LOOK_S = 1.0
LAST_LOOK_S = 5.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class GpuTally:
    """One GPU's part: joules, the most memory in MiB, and its newest look, at seconds of a clock.

    `energy_j` is None for as long as the GPU has told neither its energy nor its power.
    """

    energy_j: float | None = None
    peak_mb: int | None = None
    last: GpuLook = field(default_factory=GpuLook)
    counted_j: float | None = None
    drawn_w: float | None = None
    at: float = 0.0

    def take(self, look: GpuLook, now: float) -> None:
        """Add what was used since the look before."""
        self.last = look
        if look.memory_mb is not None:
            self.peak_mb = max(self.peak_mb or 0, look.memory_mb)
        if look.energy_j is None and look.power_w is None:
            return
        self.energy_j = (self.energy_j or 0.0) + self._since(look, now)
        self.counted_j, self.drawn_w, self.at = look.energy_j, look.power_w, now

    def _since(self, look: GpuLook, now: float) -> float:
        if look.energy_j is not None and self.counted_j is not None:
            # A counter that fell has begun anew, from nothing.
            more = look.energy_j - self.counted_j
            return more if more >= 0 else look.energy_j
        if look.power_w is not None and self.drawn_w is not None:
            return (now - self.at) * (look.power_w + self.drawn_w) / 2
        return 0.0


class UsageMeter:
    """Takes looks, and answers what was used in all and what is used now."""

    def __init__(self, gpus: Sequence[str]) -> None:
        self._gpus = {uuid: GpuTally() for uuid in gpus}
        self._cpu_seconds: float | None = None
        self._peak_memory: float | None = None
        self._use: JobUse | None = None

    def take(self, looks: Mapping[str, GpuLook], use: JobUse | None, now: float) -> None:
        """Add one look, taken at `now` seconds; what could not be had is left out of it."""
        for uuid, look in looks.items():
            self._gpus[uuid].take(look, now)
        if use is not None:
            self._use = use
            self._cpu_seconds = max(self._cpu_seconds or 0.0, use.cpu_seconds)
            self._peak_memory = max(self._peak_memory or 0.0, use.peak_memory_mb)

    def usage(self, held_s: float, money_per_second: float) -> Usage:
        """Return what was used by an attempt that held what it was lent for so long."""
        joules = [tally.energy_j for tally in self._gpus.values()]
        known = [j for j in joules if j is not None]
        peaks = [tally.peak_mb for tally in self._gpus.values() if tally.peak_mb is not None]
        return Usage(
            gpu_seconds=held_s * len(self._gpus),
            # The sum of some would be taken for the sum of all.
            energy_j=sum(known) if known and len(known) == len(joules) else None,
            cost=held_s * money_per_second if money_per_second else None,
            cpu_seconds=self._cpu_seconds,
            peak_memory_mb=None if self._peak_memory is None else round(self._peak_memory),
            peak_vram_mb=max(peaks, default=None),
        )

    def values(self) -> dict[str, Any]:
        """Return the newest look as a sample keeps it."""
        gpus = {uuid: tally.last.reported() for uuid, tally in self._gpus.items()}
        values: dict[str, Any] = {"gpus": gpus} if gpus else {}
        if self._use is not None:
            values["cpu_seconds"] = round(self._use.cpu_seconds, 3)
            values["memory_mb"] = round(self._use.memory_mb)
        return values

    def kept(self) -> dict[str, Any]:
        """Return what a later agent needs to go on, as JSON takes it."""
        tallies = {
            uuid: {"energy_j": t.energy_j, "peak_mb": t.peak_mb, "counted_j": t.counted_j}
            for uuid, t in self._gpus.items()
        }
        return {"cpu_seconds": self._cpu_seconds, "memory": self._peak_memory, "gpus": tallies}

    def go_on(self, kept: Mapping[str, Any]) -> None:
        """Begin with what an earlier agent kept.

        Raises:
            KeyError, TypeError: it is nothing that `kept` returned.
        """
        for uuid in self._gpus.keys() & kept["gpus"].keys():
            self._gpus[uuid] = GpuTally(**kept["gpus"][uuid])
        self._cpu_seconds, self._peak_memory = kept["cpu_seconds"], kept["memory"]


class AttemptUsage:
    """Looked at by the sampler; `handle` is the attempt's job once it has been started."""

    def __init__(
        self, attempt: Attempt, gpus: Sequence[str], meter: GpuMeter, clock: Callable[[], float]
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
        """Look once; when the last sample is `sample_s` seconds old, make one. Tell if so.

        None is for the last look: of a job too short for a sample, its end says all.
        """
        with self._looking:
            now = self._clock()
            use = self.handle.used() if self.handle else None
            looks = self._meter.look(self._gpus)
            self._busiest.append(self._most_used(looks))
            self._usage.take(looks, use, now)
            due = self._number > 0 if sample_s is None else now - self._sampled_at >= sample_s
            values = self._usage.values()
            if due := due and bool(values) and len(self._unsent) < UNSENT:
                self._sampled_at = now
                self._unsent.append(Sample(self._number, values))
                self._number += 1
        return due

    def busiest(self) -> list[float | None]:
        """Return of each look since this was asked before how many percent the busiest GPU was.

        None stands for a look at which one of them did not say.
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
        """Send what was not sent yet; what fails is sent again.

        Raises:
            ForgeError: the queue did not answer.
        """
        with self._sending:
            while (samples := list(self._unsent)) and not self.attempt.lost:
                if not gateway.add_samples(self.attempt.fence, samples):
                    self.attempt.lose()
                for _ in samples:
                    self._unsent.popleft()
                # The folder of one that is lost may be on its way out by now.
                if not self.attempt.lost:
                    self._keep(samples[-1].number + 1)

    def usage(self, held_s: float, money_per_second: float) -> Usage:
        """Return what was used until the last look."""
        return self._usage.usage(held_s, money_per_second)

    def _keep(self, number: int) -> None:
        # Without it, a later agent would count less; nothing else hangs on it.
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
    """One for the worker; a driver or an engine that hangs holds up nothing but this loop."""

    name = "sample"

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

    def start(self) -> None:
        super().start()
        self.shipper.start()

    def end(self, patience_s: float | None = None) -> None:
        super().end(patience_s)
        self.shipper.end(patience_s)

    def watch(self, attempt: Attempt, gpus: Sequence[str]) -> AttemptUsage:
        """Have an attempt looked at, from now until it is let go."""
        attempt_usage = AttemptUsage(attempt, gpus, self._meter, self._clock)
        with self._lock:
            self._watched.append(attempt_usage)
            self._known[attempt.fence.token] = attempt_usage
        self.wake()
        return attempt_usage

    def let_go(self, attempt_usage: AttemptUsage) -> None:
        """Look no more; once more is fine."""
        with self._lock, suppress(ValueError):
            self._watched.remove(attempt_usage)

    def used(self, attempt: Attempt) -> Usage:
        """Return what an attempt used until the last look."""
        with self._lock:
            known = self._known.get(attempt.fence.token)
        if known is None:
            return Usage()
        return known.usage(seconds() - attempt.claimed_s, self._money_per_second)

    def forget(self, attempt: Attempt) -> None:
        """Forget what an attempt used: its end is told or spooled."""
        with self._lock:
            self._known.pop(attempt.fence.token, None)

    def last(self, attempt_usage: AttemptUsage) -> Usage:
        """Look a last time, send the samples once, and return what was used in all.

        Nothing that goes wrong here is told: the attempt's end must not wait for it.
        """
        self.let_go(attempt_usage)
        look = Thread(target=self._look, args=(attempt_usage, None), name="last look", daemon=True)
        look.start()
        look.join(LAST_LOOK_S)
        self._send(attempt_usage)
        held_s = seconds() - attempt_usage.attempt.claimed_s
        return attempt_usage.usage(held_s, self._money_per_second)

    def step(self) -> None:
        """Look at every attempt."""
        made = [self._look(attempt_usage, self._sample_s) for attempt_usage in self._all()]
        if any(made):
            self.shipper.wake()

    def _look(self, attempt_usage: AttemptUsage, sample_s: float | None) -> bool:
        try:
            return attempt_usage.look(sample_s)
        except Exception:
            # Whatever a driver or an engine answers, the job goes on.
            log.warning("sample_failed", job=attempt_usage.attempt.fence.job_id, exc_info=True)
            return False

    def _send(self, attempt_usage: AttemptUsage) -> None:
        try:
            attempt_usage.send(self._gateway)
        except Exception as error:
            # Of a queue that is away, enough is said elsewhere.
            trace = not isinstance(error, ForgeError)
            log.warning("samples_lost", job=attempt_usage.attempt.fence.job_id, exc_info=trace)

    def _all(self) -> list[AttemptUsage]:
        with self._lock:
            return list(self._watched)


class SampleShipper(Loop):
    """Sends the samples in a thread of its own: a queue that is away shall blind nobody."""

    name = "samples"

    def __init__(
        self, gateway: Gateway, attempt_usage: Callable[[], list[AttemptUsage]], period_s: float
    ) -> None:
        super().__init__(period_s)
        self._gateway = gateway
        self._watched = attempt_usage

    def step(self) -> None:
        for attempt_usage in self._watched():
            attempt_usage.send(self._gateway)
