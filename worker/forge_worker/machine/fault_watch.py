"""The fault watch: hears what NVIDIA's driver says of broken GPUs, and counts their ECC errors."""

from collections.abc import Callable, Mapping, Sequence
from threading import Event
from time import monotonic

import pynvml
import structlog

from forge_worker.loop import Loop
from forge_worker.machine.gpu_events import GpuEvents
from forge_worker.machine.gpu_meter import GpuLook, GpuMeter, is_lost
from forge_worker.machine.xids import verdict

HEAR_S = 0.5
SOON_S = 0.05
SETTLE_S = 3.0

log = structlog.get_logger(__name__)


class FaultWatch(Loop):
    """Says of each broken GPU, once or more often, why it is; a slice is as broken as its GPU."""

    name = "faults"

    def __init__(
        self,
        gpus: Sequence[str],
        meter: GpuMeter,
        fault: Callable[[str, str], None],
        *,
        look_s: float,
    ) -> None:
        super().__init__(SOON_S)
        self._meter = meter
        self._fault = fault
        self._look_s = look_s
        self._events = GpuEvents(gpus)
        self._before: Mapping[str, GpuLook] = {}
        self._looked_at = float("-inf")
        self._asking: list[Event] = []
        self.needed = bool(gpus)

    def settle(self, patience_s: float = SETTLE_S) -> None:
        """Return when what was reported before this call has been heard."""
        if self._thread is None or not self._thread.is_alive():
            return
        heard = Event()
        self._asking.append(heard)
        heard.wait(patience_s)

    def step(self) -> None:
        """Hear for a moment, and look when it is time."""
        asking = tuple(self._asking)
        lost = self._hear(SOON_S if asking else HEAR_S)
        if asking or lost or monotonic() - self._looked_at >= self._look_s:
            self._look()
        for heard in asking:
            self._asking.remove(heard)
            heard.set()

    def end(self, patience_s: float | None = None) -> None:
        super().end(patience_s)
        if self._thread is None or not self._thread.is_alive():
            self._events.close()

    def _hear(self, seconds: float) -> bool:
        """Heed what is reported within the time, and what follows; tell whether a GPU is lost."""
        try:
            while not self.ending and (heard := self._events.wait(seconds)) is not None:
                seconds = SOON_S
                log.warning("the driver reports an XID", gpu=heard.gpu, xid=heard.xid)
                if why := verdict(heard.xid):
                    self._broken(heard.gpu, why)
        except pynvml.NVMLError as error:
            if not is_lost(error):
                raise
            self._ending.wait(seconds)
            return True
        return False

    def _look(self) -> None:
        self._looked_at = monotonic()
        looks = self._meter.look(list(self._events.gpus))
        # A driver that was loaded again counts from nothing, so the last look is what counts.
        told = {gpu: look for gpu, look in looks.items() if look.ecc is not None}
        earlier, self._before = self._before, {**self._before, **told}
        for gpu, look in looks.items():
            before = earlier[gpu].ecc if gpu in earlier else look.ecc
            if look.lost:
                self._broken(gpu, "the GPU no longer answers")
                self._events.forget(gpu)
            elif look.ecc is not None and before is not None and look.ecc > before:
                self._broken(gpu, f"{look.ecc - before} uncorrected ECC errors")

    def _broken(self, gpu: str, why: str) -> None:
        for lent in self._events.gpus.get(gpu, ()):
            self._fault(lent, why)
