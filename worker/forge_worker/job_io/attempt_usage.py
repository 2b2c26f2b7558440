"""An attempt under the sampler's watch: its looks, and the samples that were not sent yet."""

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Lock

from forge_schema.model.attempt_records import Sample
from forge_schema.model.lease import Usage

from forge_worker.files.atomic import write_atomically
from forge_worker.job_io.usage import UsageMeter
from forge_worker.job_runs.attempt import Attempt
from forge_worker.machine.gpu_meter import GpuLook, GpuMeter
from forge_worker.queue.gateway import Gateway
from forge_worker.runners.runner import Handle

# While the queue is away, so many wait at most; no number may be left out, so then none is added.
UNSENT = 4000
# Few ask how busy the GPUs were; for the others, old looks are forgotten.
LOOKS = 600
FILE = "usage.json"


class Watched:
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
