"""What the machine lends, and to which job: CPUs, memory, disk, GPUs by UUID."""

from dataclasses import dataclass
from threading import Lock

from forge_schema.lanes import Capacity

from forge_worker.devices import Gpu


@dataclass(frozen=True, slots=True)
class Slot:
    """What one job has been lent."""

    cpus: float
    memory_mb: int
    disk_mb: int
    gpu_uuids: tuple[str, ...] = ()


class Slots:
    """Lends and takes back; a GPU serves one job at a time."""

    def __init__(self, total: Capacity, gpus: list[Gpu], *, max_jobs: int) -> None:
        self._total = total
        self._gpus = [gpu.uuid for gpu in gpus]
        self._max_jobs = max_jobs
        self._lent: dict[int, Slot] = {}
        self._lock = Lock()

    @property
    def lent(self) -> dict[int, Slot]:
        """What each job has, by its token."""
        with self._lock:
            return dict(self._lent)

    @property
    def jobs(self) -> int:
        """How many jobs hold a slot."""
        return len(self._lent)

    def room(self, *, without: int | None = None) -> tuple[Capacity, int]:
        """Return what is free and how many more jobs may run, as if job `without` were gone."""
        with self._lock:
            lent = [slot for token, slot in self._lent.items() if token != without]
        free = Capacity(
            cpus=self._total.cpus - sum(slot.cpus for slot in lent),
            memory_mb=self._total.memory_mb - sum(slot.memory_mb for slot in lent),
            disk_mb=self._total.disk_mb - sum(slot.disk_mb for slot in lent),
            gpus=len(self._gpus) - sum(len(slot.gpu_uuids) for slot in lent),
        )
        return free, self._max_jobs - len(lent)

    def lend(self, token: int, needs: Capacity) -> Slot:
        """Lend what a job needs; the claim has made sure that it is there."""
        with self._lock:
            taken = {uuid for slot in self._lent.values() for uuid in slot.gpu_uuids}
            free = [uuid for uuid in self._gpus if uuid not in taken]
            chosen = tuple(free[: needs.gpus])
            slot = Slot(needs.cpus, needs.memory_mb, needs.disk_mb, chosen)
            self._lent[token] = slot
        return slot

    def lend_again(self, token: int, slot: Slot) -> None:
        """Lend what a job has had since an earlier boot, whatever is to be lent now."""
        with self._lock:
            self._lent[token] = slot

    def take_back(self, token: int) -> None:
        """Take back what the job of this token was lent; once more is fine."""
        with self._lock:
            self._lent.pop(token, None)
