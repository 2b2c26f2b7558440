"""The resources that the machine lends to jobs: CPUs, memory, disk, and GPUs by UUID."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock

from forge_schema.model.worker import Capacity

from forge_worker.machine.gpu_pool import Choice, GpuPool


@dataclass(frozen=True, slots=True)
class MachineSlot:
    """Resources lent to one job; `vram_mb` is the memory of its smallest GPU, in MiB."""

    cpus: float
    memory_mb: int
    disk_mb: int
    gpu_uuids: tuple[str, ...] = ()
    vram_mb: int = 0
    gpu_vendor: str = ""

    @property
    def only_disk(self) -> "MachineSlot":
        """What is left of it once its job has ended: the disk, until the job's folder is gone."""
        return MachineSlot(0, 0, self.disk_mb)

    @property
    def batch_size(self) -> int:
        """An initial batch size: four samples per GiB, rounded down to a power of two.

        A guess that ignores the model: 256 on 80 GiB, 64 on 24 GiB, never above 1024.
        """
        memory_mb = self.vram_mb if self.gpu_uuids else self.memory_mb
        samples = min(1024, max(1, memory_mb * 4 // 1024))
        return 1 << (samples.bit_length() - 1)


class Slots:
    """Lend resources to jobs and take them back; a GPU serves one job at a time.

    A job that has ended keeps only its disk while its output is stored. At most `max_storing` jobs
    do, by default `max_jobs`: the next to end keep their slots until one of these is taken back.
    """

    def __init__(
        self,
        total: Capacity,
        gpus: GpuPool | None = None,
        *,
        max_jobs: int,
        max_storing: int | None = None,
    ) -> None:
        self._total = total
        self.gpus = gpus or GpuPool()
        self._max_jobs = max_jobs
        self._max_storing = max_jobs if max_storing is None else max_storing
        self._lent: dict[int, MachineSlot] = {}
        # By token, in the order in which they ended.
        self._ended: list[int] = []
        self._lock = Lock()

    @property
    def lent(self) -> dict[int, MachineSlot]:
        """The slot of each job, by its token."""
        with self._lock:
            return dict(self._lent)

    def gpus_lent(self) -> set[str]:
        """Return the UUIDs of the GPUs that jobs have."""
        return {uuid for slot in self.lent.values() for uuid in slot.gpu_uuids}

    @property
    def jobs(self) -> int:
        """How many jobs hold a slot, or what is left of it."""
        return len(self._lent)

    @property
    def spare(self) -> int:
        """How many more jobs with one CPU each may run now."""
        free, jobs = self._room(())
        return max(0, min(jobs, int(free.cpus)))

    def choices(self, *, without: Collection[int] = ()) -> Sequence[Choice | None]:
        """Return the kinds of GPU to claim for, in order; None is for jobs without a GPU."""
        return self.gpus.choices(without) or [None]

    @contextmanager
    def offer(
        self, choice: Choice | None = None, *, without: Collection[int] = ()
    ) -> Iterator[tuple[Capacity, int]]:
        """Yield what is free and how many more jobs may run, as if the jobs `without` had ended.

        The GPUs counted stay locked for this worker until the block ends.
        """
        free, jobs = self._room(without)
        if choice is None:
            yield free, jobs
            return
        with self.gpus.hold(choice, without) as (gpus, in_all):
            free = replace(free, gpus=gpus, gpus_in_all=in_all)
            yield replace(free, gpu_model=choice.name, vram_mb=choice.free_mb), jobs

    def _room(self, without: Collection[int]) -> tuple[Capacity, int]:
        with self._lock:
            lent = [slot for token, slot in self._lent.items() if token not in without]
            storing = [token for token in self._storing() if token not in without]
        free = Capacity(
            cpus=self._total.cpus - sum(slot.cpus for slot in lent),
            memory_mb=self._total.memory_mb - sum(slot.memory_mb for slot in lent),
            disk_mb=self._total.disk_mb - sum(slot.disk_mb for slot in lent),
        )
        return free, self._max_jobs - len(lent) + len(storing)

    def lend(self, token: int, needs: Capacity) -> MachineSlot:
        """Lend a job what it needs; the claim has checked that this was offered."""
        gpus = self.gpus.lend(token, needs) if needs.gpus else []
        slot = MachineSlot(
            needs.cpus,
            needs.memory_mb,
            needs.disk_mb,
            tuple(gpu.uuid for gpu in gpus),
            min((gpu.vram_mb for gpu in gpus), default=0),
            gpus[0].vendor if gpus else "",
        )
        with self._lock:
            self._lent[token] = slot
        return slot

    def lend_again(self, token: int, slot: MachineSlot, *, ended: bool = False) -> None:
        """Lend a job what it has had since an earlier boot, whatever the settings are now.

        The GPUs of one that has `ended` may have been lent to another job since.
        """
        if not ended:
            self.gpus.lend_again(token, slot.gpu_uuids)
        with self._lock:
            self._lent[token] = slot.only_disk if ended else slot
            if ended:
                self._ended.append(token)

    def keep_disk(self, token: int) -> None:
        """Take back all but the disk of a job that has ended, now or when it is its turn."""
        with self._lock:
            if token in self._lent and token not in self._ended:
                self._ended.append(token)
        self._let_go_of_ended()

    def take_back(self, token: int) -> None:
        """Take back the slot of the job with this token. May be repeated."""
        self.gpus.take_back(token)
        with self._lock:
            self._lent.pop(token, None)
            if token in self._ended:
                self._ended.remove(token)
        self._let_go_of_ended()

    def _let_go_of_ended(self) -> None:
        with self._lock:
            storing = self._storing()
            for token in storing:
                self._lent[token] = self._lent[token].only_disk
        for token in storing:
            self.gpus.take_back(token)

    def _storing(self) -> list[int]:
        return self._ended[: self._max_storing]
