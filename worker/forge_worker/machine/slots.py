"""The resources that the machine lends to jobs: CPUs, memory, disk, and GPUs by UUID."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock

import structlog
from forge_schema.model.quantities import counted
from forge_schema.model.worker import Capacity, is_model

from forge_worker.devices import GpuDevice, Use
from forge_worker.machine.locks import Locks

NOBODY = Use()

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Choice:
    """GPUs that can serve one job together: of one kind, with the free memory of each in MiB."""

    name: str
    vram_mb: int
    free_mb: int

    @property
    def kind(self) -> tuple[str, int]:
        """The kind of the GPUs, as in `Gpu.kind`."""
        return self.name, self.vram_mb


class GpuPool:
    """Lends each GPU to one job at a time; shares them with other workers by their locks.

    A GPU with a foreign compute process is not lent. `used` returns the use of each GPU, uncached
    with `anew`. Free GPUs are locked from the moment they are counted until they are lent or
    released.
    """

    def __init__(
        self,
        gpus: Sequence[GpuDevice] = (),
        used: Callable[[bool], Mapping[str, Use]] = lambda _: {},
        locks: Locks | None = None,
    ) -> None:
        self._gpus = list(gpus)
        self._used = used
        self._locks = locks or Locks()
        self._lent: dict[str, int] = {}
        self._held: list[GpuDevice] = []
        self._withdrawn: set[str] = set()
        self._to_look = False
        self._lock = Lock()

    def withdraw(self, uuid: str) -> None:
        """Stop lending a GPU; a job that has it keeps it."""
        self._withdrawn.add(uuid)

    def restore(self, uuid: str) -> None:
        """Lend a withdrawn GPU again."""
        self._withdrawn.discard(uuid)

    def choices(self, without: Collection[int] = ()) -> list[Choice]:
        """Return the GPUs to claim jobs for, most first, as if the jobs `without` had ended.

        Those jobs' own GPUs come first. The GPUs of a choice may turn out to be locked.
        """
        used = self._look(anew=bool(without))
        with self._lock:
            own = {gpu.kind for gpu in self._gpus if self._lent.get(gpu.uuid) in without}
            free = [gpu for gpu in self._usable(used, without) if self._is_free(gpu, without)]
        choices = {Choice(*gpu.kind, _free_mb(gpu, used)) for gpu in free}
        return sorted(choices, key=lambda c: (c.kind not in own, c.name, c.free_mb))

    @contextmanager
    def hold(self, choice: Choice, without: Collection[int] = ()) -> Iterator[tuple[int, int]]:
        """Lock the free GPUs of a choice while the block runs; those not lent by then are released.

        Yields how many are free now, and how many of the choice can become free later.

        Raises:
            LocksUnusable: the lock folder cannot be used; no GPU is locked then.
        """
        with self._lock:
            free = [gpu for gpu in self._gpus if self._is_free(gpu, without)]
            self._held = held = self._taken([gpu for gpu in free if gpu.kind == choice.kind])
        try:
            # Look after locking: a dead worker's lock is free, but its job may still use the GPU.
            used = self._look(anew=bool(held))
            usable = [gpu for gpu in self._usable(used, without) if _is_of(choice, gpu, used)]
            self._held = [gpu for gpu in held if gpu in usable]
            yield len(self._held), len(usable)
        finally:
            self._let_go(held)

    def lend(self, token: int, needs: Capacity) -> list[GpuDevice]:
        """Lend a job the GPUs that it needs from those that are held.

        Raises:
            ValueError: too few GPUs are held.
        """
        with self._lock:
            free = [gpu for gpu in self._held if gpu.uuid not in self._lent]
            fitting = [gpu for gpu in free if _suits(gpu, needs)]
            if len(fitting) < needs.gpus:
                raise ValueError(
                    f"{counted(needs.gpus, 'GPU')} needed, but only {len(fitting)} held"
                )
            lent = fitting[: needs.gpus]
            self._lent |= {gpu.uuid: token for gpu in lent}
        return lent

    def lend_again(self, token: int, uuids: Collection[str]) -> None:
        """Lend GPUs to a job that has had them since an earlier boot, even if locked by others."""
        with self._lock:
            for uuid in uuids:
                if not self._locks.take(uuid):
                    log.warning("gpu_taken", gpu=uuid)
                self._lent[uuid] = token

    def take_back(self, token: int) -> None:
        """Take back a job's GPUs. May be repeated."""
        with self._lock:
            held = {gpu.uuid for gpu in self._held}
            for uuid in [uuid for uuid, to in self._lent.items() if to == token]:
                del self._lent[uuid]
                self._to_look = True
                if uuid not in held:
                    self._locks.free(uuid)

    def _taken(self, free: list[GpuDevice]) -> list[GpuDevice]:
        """Lock GPUs, and return those that no other worker has locked."""
        try:
            return [gpu for gpu in free if self._locks.take(gpu.uuid)]
        except BaseException:
            self._free(free)
            raise

    def _let_go(self, held: list[GpuDevice]) -> None:
        with self._lock:
            self._held = []
            self._free(held)

    def _free(self, held: list[GpuDevice]) -> None:
        for gpu in held:
            if gpu.uuid not in self._lent:
                self._locks.free(gpu.uuid)

    def _look(self, *, anew: bool) -> Mapping[str, Use]:
        # An older look still shows the processes of our own job that has since ended.
        anew, self._to_look = self._to_look or anew, False
        return self._used(anew) if self._gpus else {}

    def _usable(self, used: Mapping[str, Use], without: Collection[int]) -> list[GpuDevice]:
        """Return the GPUs that are free, or will be once this worker's jobs end."""
        here = [gpu for gpu in self._gpus if gpu.uuid not in self._withdrawn]
        pairs = [(gpu, used.get(gpu.uuid, NOBODY)) for gpu in here]
        return [
            gpu
            for gpu, use in pairs
            if not use.gone and not (use.computing and self._is_free(gpu, without))
        ]

    def _is_free(self, gpu: GpuDevice, without: Collection[int]) -> bool:
        return gpu.uuid not in self._lent or self._lent[gpu.uuid] in without


def _free_mb(gpu: GpuDevice, used: Mapping[str, Use]) -> int:
    return max(0, gpu.vram_mb - used.get(gpu.uuid, NOBODY).taken_mb)


def _suits(gpu: GpuDevice, needs: Capacity) -> bool:
    return is_model(needs.gpu_model or "*", gpu.name) and gpu.vram_mb >= needs.vram_mb


def _is_of(choice: Choice, gpu: GpuDevice, used: Mapping[str, Use]) -> bool:
    return gpu.kind == choice.kind and _free_mb(gpu, used) >= choice.free_mb


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
