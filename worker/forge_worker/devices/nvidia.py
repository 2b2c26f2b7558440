"""NVIDIA GPUs through NVML, the library of the driver, else through `nvidia-smi`."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Lock
from typing import Any, ClassVar, TypeVar

import pynvml
import structlog

from forge_worker.devices import GpuDevice, Use, asked

T = TypeVar("T")
Handle = Any
LeftOut = Callable[[int, pynvml.NVMLError], None]

FIELDS = (
    "index",
    "uuid",
    "name",
    "memory.total",
    "compute_cap",
    "driver_version",
    "mig.mode.current",
)
# An older driver's nvidia-smi rejects a query with an unknown field.
OLD_FIELDS = ("index", "uuid", "name", "memory.total", "driver_version")
CSV = "--format=csv,noheader,nounits"
# Output of `nvidia-smi -L`: "GPU 0: NVIDIA A100 (UUID: GPU-…)", and below it
# "  MIG 1g.5gb  Device 0: (UUID: MIG-…)".
LISTED = re.compile(r"^GPU (?P<number>\d+): ", re.MULTILINE)
SLICE = re.compile(r"^\s+MIG (?P<profile>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-[^)]+)\)")
# A profile's name contains its memory: 1g.5gb, 3g.20gb, 1c.3g.20gb.
GIB = re.compile(r"\.(\d+)gb")
UNKNOWN = ("[N/A]", "[Not Supported]", "N/A", "")

log = structlog.get_logger(__name__)


class OpenNvml:
    """Keep NVML open, because opening it can take seconds while the GPUs are idle. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open = False

    def close(self) -> None:
        """Close NVML; the next question opens it again."""
        with self._lock:
            if self._open:
                pynvml.nvmlShutdown()
            self._open = False

    def _opened(self) -> bool:
        with self._lock:
            if not self._open:
                with suppress(pynvml.NVMLError):
                    pynvml.nvmlInit()
                    self._open = True
            return self._open


class Nvml(OpenNvml):
    """The GPUs that the driver's library knows."""

    accelerator: ClassVar[str] = "cuda"
    fresh_s: ClassVar[float] = 1.0
    complete: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._silent: set[int] = set()

    def gpus(self) -> list[GpuDevice]:
        """Return the GPUs; a GPU in MIG mode is replaced by its slices."""
        if not self._opened():
            return []
        driver = _answer(pynvml.nvmlSystemGetDriverVersion) or ""
        whole = list(_handles(self._left_out))
        return [gpu for device in whole for gpu in _gpus(*device, str(driver), self._left_out)]

    def use(self) -> dict[str, Use] | None:
        """Return the use of each GPU or slice, or None if NVML does not answer."""
        if not self._opened():
            return None
        whole = [handle for _, handle in _handles(self._left_out)]
        handles = [part for handle in whole for part in (_slices(handle) or [handle])]
        used = ((_uuid(part), _use(part)) for part in handles)
        return {uuid: use for uuid, use in used if uuid}

    def _left_out(self, number: int, error: pynvml.NVMLError) -> None:
        # The GPU is checked every second, but the failure is logged once.
        if number not in self._silent:
            self._silent.add(number)
            log.warning("gpu_unresponsive", gpu=number, error=str(error))


def _handles(left_out: LeftOut) -> Iterator[tuple[int, Handle]]:
    for number in range(_answer(pynvml.nvmlDeviceGetCount) or 0):
        try:
            yield number, pynvml.nvmlDeviceGetHandleByIndex(number)
        except pynvml.NVMLError as error:
            left_out(number, error)


def _gpus(number: int, handle: Handle, driver: str, left_out: LeftOut) -> list[GpuDevice]:
    try:
        whole = _gpu(handle, number, driver, "", None)
        if not _in_mig_mode(handle):
            return [whole]
        own = (whole.capability, whole.uuid)
        return [_gpu(part, number, driver, *own) for part in _slices(handle)]
    except pynvml.NVMLError as error:
        left_out(number, error)
        return []


def _gpu(
    handle: Handle, number: int, driver: str, capability: str, parent: str | None
) -> GpuDevice:
    return GpuDevice(
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        name=str(pynvml.nvmlDeviceGetName(handle)),
        vram_mb=_answer(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20) or 0,
        capability=_answer(lambda: _capability(handle)) or capability,
        driver=driver,
        parent=parent,
        number=number,
    )


def _capability(handle: Handle) -> str:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return f"{major}.{minor}"


def _in_mig_mode(handle: Handle) -> bool:
    modes = _answer(lambda: pynvml.nvmlDeviceGetMigMode(handle))
    return bool(modes and modes[0] == pynvml.NVML_DEVICE_MIG_ENABLE)


def _slices(handle: Handle) -> list[Handle]:
    if not _in_mig_mode(handle):
        return []
    most = _answer(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))) or 0
    handles: list[Handle] = []
    for number in range(most):
        # The numbers have gaps where slices were removed.
        with suppress(pynvml.NVMLError):
            handles.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
    return handles


def _uuid(handle: Handle) -> str | None:
    return _answer(lambda: str(pynvml.nvmlDeviceGetUUID(handle)))


def _use(handle: Handle) -> Use:
    try:
        computing = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError as error:
        # Some virtual GPUs do not report their processes.
        return Use() if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED else Use(gone=True)
    drawing = _answer(lambda: pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle)) or []
    pids = frozenset(int(process.pid) for process in computing)
    # A process that does both counts once, as computing. Its memory is not always reported.
    others = [process.usedGpuMemory or 0 for process in drawing if process.pid not in pids]
    return Use(pids, sum(others) >> 20)


def _answer(ask: Callable[[], T]) -> T | None:
    """Return NVML's answer, or None on an error."""
    try:
        return ask()
    except pynvml.NVMLError:
        return None


class NvidiaSmi:
    """Run the program for each question, which takes about a second."""

    accelerator: ClassVar[str] = "cuda"
    fresh_s: ClassVar[float] = 5.0
    complete: ClassVar[bool] = False

    def gpus(self) -> list[GpuDevice]:
        """Return the GPUs; a GPU in MIG mode is replaced by its slices."""
        rows = _rows("gpu", FIELDS) or _rows("gpu", OLD_FIELDS) or []
        devices = [_listed_gpu(row) for row in rows if row["uuid"].startswith("GPU-")]
        sliced = {row["uuid"] for row in rows if row.get("mig.mode.current") == "Enabled"}
        slices = _listed_slices(asked("nvidia-smi", "-L") or "", devices) if sliced else {}
        return [
            part
            for gpu in devices
            for part in slices.get(gpu.uuid, [] if gpu.uuid in sliced else [gpu])
        ]

    def use(self) -> dict[str, Use] | None:
        """Return the compute processes of each GPU; graphics and slices are not reported."""
        rows = _rows("compute-apps", ("gpu_uuid", "pid"))
        pids: dict[str, set[int]] = {}
        for row in rows or []:
            if row["pid"].isdigit():
                pids.setdefault(row["gpu_uuid"], set()).add(int(row["pid"]))
        return None if rows is None else {uuid: Use(frozenset(p)) for uuid, p in pids.items()}


def _rows(about: str, fields: tuple[str, ...]) -> list[dict[str, str]] | None:
    table = asked("nvidia-smi", f"--query-{about}={','.join(fields)}", CSV)
    if table is None:
        return None
    lines = [line.split(", ") for line in table.splitlines()]
    return [
        dict(zip(fields, map(str.strip, line), strict=True))
        for line in lines
        if len(line) == len(fields)
    ]


def _listed_gpu(row: dict[str, str]) -> GpuDevice:
    return GpuDevice(
        uuid=row["uuid"],
        name=row["name"],
        vram_mb=int(row["memory.total"]) if row["memory.total"].isdigit() else 0,
        capability=_known(row.get("compute_cap", "")),
        driver=_known(row["driver_version"]),
        number=int(row["index"]),
    )


def _known(text: str) -> str:
    return "" if text in UNKNOWN else text


def _listed_slices(listing: str, devices: list[GpuDevice]) -> dict[str, list[GpuDevice]]:
    """Return the slices that `nvidia-smi -L` lists, by the UUID of their GPU."""
    parents = {gpu.number: gpu for gpu in devices}
    slices: dict[str, list[GpuDevice]] = {}
    for number, line in _numbered(listing):
        if (match := SLICE.match(line)) and (parent := parents.get(number)):
            slices.setdefault(parent.uuid, []).append(_slice(match, parent))
    return slices


def _numbered(listing: str) -> Iterator[tuple[int, str]]:
    number = -1
    for line in listing.splitlines():
        if match := LISTED.match(line):
            number = int(match["number"])
        yield number, line


def _slice(match: re.Match[str], parent: GpuDevice) -> GpuDevice:
    gib = GIB.search(match["profile"])
    return GpuDevice(
        uuid=match["uuid"],
        name=f"{parent.name} MIG {match['profile']}",
        vram_mb=int(gib[1]) << 10 if gib else 0,
        capability=parent.capability,
        driver=parent.driver,
        parent=parent.uuid,
        number=parent.number,
    )
