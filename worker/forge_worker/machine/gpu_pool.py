"""The GPUs that a worker lends: which are free, and which job has which."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
