"""The built-in check of the gate: the GPUs of the next job, the disk and the loopback device.

Its bounds are far below what a working machine reaches, even a busy one: it finds what is broken.
Xids need no check: a GPU with one is in quarantine.
"""

import os
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Thread
from time import monotonic

from forge_schema.model.quantities import MIB, size_text

from forge_worker.machine.gpu_health import GpuMeter

WRITTEN, SENT = 16 * MIB, 32 * MIB
LEAST_DISK_MB_S, LEAST_LOOPBACK_MB_S = 5.0, 50.0
# What others may hold of a GPU that no job has: a desktop, a monitor.
LEAST_FREE = 0.85
PATIENCE_S = 10.0


class MachineCheck:
    """Called with the UUIDs of some free GPUs, it returns what is wrong with the machine, or "".

    Args:
        folder: where jobs write.
        meter: reads the GPUs.
        vram_mb: the memory of each of NVIDIA's GPUs, by UUID; others are not looked at.
        disk_floor_mb: how much of the disk must be free.
    """

    def __init__(
        self, folder: Path, meter: GpuMeter, vram_mb: Mapping[str, int], *, disk_floor_mb: int
    ) -> None:
        self._folder = folder
        self._meter = meter
        self._vram_mb = vram_mb
        self._disk_floor_mb = disk_floor_mb

    def __call__(self, gpus: Sequence[str]) -> str:
        faults = (*self._of_gpus(gpus), *self._of_disk(), *_of_loopback())
        return "; ".join(faults)

    def _of_gpus(self, gpus: Sequence[str]) -> Iterator[str]:
        known = [uuid for uuid in gpus if uuid in self._vram_mb]
        looks = self._meter.look(known)
        for uuid in known:
            look = looks.get(uuid)
            if look is None or look.lost:
                yield f"GPU {uuid} does not answer"
                continue
            if look.ecc:
                yield f"GPU {uuid} has {look.ecc} uncorrected ECC errors since its driver started"
            free_mb = self._vram_mb[uuid] - (look.memory_mb or 0)
            if free_mb < LEAST_FREE * self._vram_mb[uuid]:
                yield f"GPU {uuid} has only {size_text(free_mb * MIB)} of free memory"

    def _of_disk(self) -> Iterator[str]:
        began = monotonic()
        try:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                for _ in range(WRITTEN // MIB):
                    file.write(os.urandom(MIB))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            yield f"the disk of {self._folder} cannot be written to: {error.strerror}"
            return
        if (rate := _rate(WRITTEN, began)) < LEAST_DISK_MB_S:
            yield f"the disk of {self._folder} takes only {rate:.1f} MB/s"
        left = os.statvfs(self._folder)
        free_mb = left.f_bavail * left.f_frsize >> 20
        if free_mb < self._disk_floor_mb:
            yield f"the disk of {self._folder} has only {size_text(free_mb * MIB)} free"


def _of_loopback() -> Iterator[str]:
    began = monotonic()
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(PATIENCE_S)
            sender = Thread(target=_send, args=(server.getsockname(),), daemon=True)
            sender.start()
            connection, _ = server.accept()
            with connection:
                connection.settimeout(PATIENCE_S)
                received = 0
                while received < SENT and (piece := connection.recv(MIB)):
                    received += len(piece)
    except OSError as error:
        yield f"the loopback device does not work: {error}"
        return
    if received < SENT or (rate := _rate(SENT, began)) < LEAST_LOOPBACK_MB_S:
        slow = "lost data" if received < SENT else f"moves only {rate:.0f} MB/s"
        yield f"the loopback device {slow}"


def _send(address: tuple[str, int]) -> None:
    piece = bytes(MIB)
    with socket.create_connection(address, timeout=PATIENCE_S) as connection:
        for _ in range(SENT // MIB):
            connection.sendall(piece)


def _rate(count: int, began_s: float) -> float:
    """Return the megabytes per second of what was moved since a moment."""
    return count / 1e6 / max(monotonic() - began_s, 1e-6)
