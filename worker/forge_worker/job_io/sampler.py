"""The sampler: looks at what every attempt of the worker uses, and keeps samples of it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import Usage

from forge_worker.job_io.attempt_usage import Watched
from forge_worker.job_runs.attempt import Attempt
from forge_worker.loop import Loop
from forge_worker.machine.gpu_meter import GpuMeter
from forge_worker.queue.gateway import Gateway

# A container can be asked nothing after its end: so much of it is unknown at most.
LOOK_S = 1.0
LAST_LOOK_S = 5.0

log = structlog.get_logger(__name__)


class Sampler(Loop):
    """One for the worker; a driver or an engine that hangs holds up nothing but this loop."""

    name = "sample"

    def __init__(
        self,
        gateway: Gateway,
        meter: GpuMeter,
        *,
        sample_s: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(min(LOOK_S, sample_s))
        self._gateway = gateway
        self._meter = meter
        self._sample_s = sample_s
        self._clock = clock
        self._watched: list[Watched] = []
        self._lock = Lock()
        self.shipper = SampleShipper(gateway, self._all, sample_s)

    def start(self) -> None:
        super().start()
        self.shipper.start()

    def end(self, patience_s: float | None = None) -> None:
        super().end(patience_s)
        self.shipper.end(patience_s)

    def watch(self, attempt: Attempt, gpus: Sequence[str]) -> Watched:
        """Have an attempt looked at, from now until it is let go."""
        watched = Watched(attempt, gpus, self._meter, self._clock)
        with self._lock:
            self._watched.append(watched)
        self.wake()
        return watched

    def let_go(self, watched: Watched) -> None:
        """Look no more; once more is fine."""
        with self._lock, suppress(ValueError):
            self._watched.remove(watched)

    def last(self, watched: Watched, held_s: float, money_per_second: float) -> Usage:
        """Look a last time, send the samples once, and return what was used in all.

        Nothing that goes wrong here is told: the attempt's end must not wait for it.
        """
        self.let_go(watched)
        look = Thread(target=self._look, args=(watched, None), name="last look", daemon=True)
        look.start()
        look.join(LAST_LOOK_S)
        self._send(watched)
        return watched.usage(held_s, money_per_second)

    def step(self) -> None:
        """Look at every attempt."""
        made = [self._look(watched, self._sample_s) for watched in self._all()]
        if any(made):
            self.shipper.wake()

    def _look(self, watched: Watched, sample_s: float | None) -> bool:
        try:
            return watched.look(sample_s)
        except Exception:
            # Whatever a driver or an engine answers, the job goes on.
            log.warning("look failed", job=watched.attempt.fence.job_id, exc_info=True)
            return False

    def _send(self, watched: Watched) -> None:
        try:
            watched.send(self._gateway)
        except Exception as error:
            # Of a queue that is away, enough is said elsewhere.
            trace = not isinstance(error, ForgeError)
            log.warning("samples lost", job=watched.attempt.fence.job_id, exc_info=trace)

    def _all(self) -> list[Watched]:
        with self._lock:
            return list(self._watched)


class SampleShipper(Loop):
    """Sends the samples in a thread of its own: a queue that is away shall blind nobody."""

    name = "samples"

    def __init__(
        self, gateway: Gateway, watched: Callable[[], list[Watched]], period_s: float
    ) -> None:
        super().__init__(period_s)
        self._gateway = gateway
        self._watched = watched

    def step(self) -> None:
        for watched in self._watched():
            watched.send(self._gateway)
