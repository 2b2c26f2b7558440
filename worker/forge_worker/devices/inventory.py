"""The inventory: the GPUs that a worker lends of those that the first source with any finds."""

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import ClassVar

import structlog
from forge_schema.model.errors import ForgeError

from forge_worker.devices import GpuDevice, GpuSource, Use, asked
from forge_worker.devices.nvidia import NvidiaSmi, Nvml
from forge_worker.devices.rocm import Rocm

# By these an operator, or the scheduler that started the worker, leaves it some of the GPUs.
LEFT_BY = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
}

log = structlog.get_logger(__name__)


class Apple:
    """Detect the GPU on macOS. Its use cannot be measured."""

    accelerator: ClassVar[str] = "mps"
    fresh_s: ClassVar[float] = 60.0
    complete: ClassVar[bool] = False

    def gpus(self) -> list[GpuDevice]:
        """Return the one GPU, with a UUID derived from the machine's."""
        if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
            return []
        hardware = read_hardware(asked("system_profiler", "-json", "SPHardwareDataType") or "")
        memory = (asked("sysctl", "-n", "hw.memsize") or "").strip()
        if hardware is None or not memory.isdigit():
            return []
        chip, machine = hardware
        system = platform.mac_ver()[0]
        return [GpuDevice(f"MPS-{machine}", chip, int(memory) >> 20, vendor="apple", driver=system)]

    def use(self) -> dict[str, Use] | None:
        return None


def read_hardware(text: str) -> tuple[str, str] | None:
    """Return the chip's name and the machine's UUID, or None if one is missing."""
    with suppress(ValueError, KeyError, IndexError, TypeError):
        hardware = json.loads(text)["SPHardwareDataType"][0]
        return str(hardware["chip_type"]), str(hardware["platform_UUID"])
    return None


SOURCES: tuple[Callable[[], GpuSource], ...] = (Nvml, NvidiaSmi, Rocm, Apple)


class GpuMissing(ForgeError):
    """`--gpus` names a GPU that this machine does not have."""


class GpusUnclear(ForgeError):
    """CUDA's numbers in the environment do not tell which GPUs are meant."""


def chosen(gpus: Sequence[GpuDevice], words: Sequence[str]) -> list[GpuDevice]:
    """Return the GPUs that `--gpus` names, by UUID or by the driver's number; each once.

    A GPU in MIG mode stands for all of its slices.

    Raises:
        GpuMissing: a GPU does not exist, or a word for several is combined with others.
    """
    if list(words) in (["none"], []):
        return []
    if list(words) == ["all"]:
        return list(gpus)
    wanted = {word.casefold() for word in words}
    for word in words:
        if not any(word.casefold() in _names(gpu) for gpu in gpus):
            raise GpuMissing(
                f"--gpus names {word!r}, which is not on this machine", hint=_listing(gpus)
            )
    return [gpu for gpu in gpus if wanted & _names(gpu)]


def visible(
    gpus: Sequence[GpuDevice], accelerator: str, environment: Mapping[str, str]
) -> list[GpuDevice]:
    """Return the GPUs that a program with this environment would see: all, unless it says which.

    Like the drivers, it stops at the first that is not there, takes the start of a UUID, and sees
    none if the variable is empty.

    Raises:
        GpusUnclear: it has numbers for some GPUs of several models, in CUDA's own order.
    """
    said = next((name for name in LEFT_BY.get(accelerator, ()) if name in environment), "")
    if not said:
        return list(gpus)
    left: list[GpuDevice] = []
    for word in environment[said].split(","):
        named = [gpu for gpu in gpus if _named(gpu, word.strip())]
        if not named:
            break
        left += named
    if accelerator == "cuda" and _unclear(gpus, left, environment):
        raise GpusUnclear(
            f"{said}={environment[said]} may mean other GPUs to CUDA than to nvidia-smi: this"
            " machine has several models, and CUDA numbers the fastest first",
            hint="set CUDA_DEVICE_ORDER=PCI_BUS_ID if these are the numbers of nvidia-smi; else"
            " name the GPUs by UUID, there or in --gpus",
        )
    log.info("gpus_left", by=f"{said}={environment[said]}", left=len(left), there=len(gpus))
    return [gpu for gpu in gpus if gpu in left]


def _unclear(
    gpus: Sequence[GpuDevice], left: Sequence[GpuDevice], environment: Mapping[str, str]
) -> bool:
    """Return whether CUDA, which knows its order of several models alone, may see other GPUs."""
    words = environment["CUDA_VISIBLE_DEVICES"].split(",")
    numbered = any(word.strip().isdecimal() for word in words)
    models = {gpu.name.partition(" MIG ")[0] for gpu in gpus}
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    return numbered and len(models) > 1 and not by_bus and not all(gpu in left for gpu in gpus)


def _named(gpu: GpuDevice, word: str) -> bool:
    if word.isdecimal():
        return int(word) == gpu.number
    return bool(word) and any(name.startswith(word.casefold()) for name in _names(gpu))


def _names(gpu: GpuDevice) -> set[str]:
    return {gpu.uuid.casefold(), str(gpu.number), (gpu.parent or gpu.uuid).casefold()}


def _listing(gpus: Sequence[GpuDevice]) -> str:
    if not gpus:
        return "no GPU is found on this machine; `--gpus none` offers none"
    listed = "; ".join(f"{gpu.number}: {gpu.uuid} ({gpu.name})" for gpu in gpus)
    return f"write all, none, or some of these, separated by commas, by number or UUID: {listed}"


class Inventory:
    """The GPUs of this machine; `use` is cheap enough to be called often."""

    def __init__(self, words: Sequence[str] = ("all",)) -> None:
        """Detect the GPUs once.

        Raises:
            GpuMissing: `words` names a GPU that does not exist.
        """
        self._source, devices = _first() if list(words) != ["none"] else (None, [])
        if list(words) == ["visible"]:
            kind = self._source.accelerator if self._source else ""
            self.gpus = visible(devices, kind, os.environ)
        else:
            self.gpus = chosen(devices, words)
        self._lock = Lock()
        self._used: Mapping[str, Use] = {}
        self._asked_at: float | None = None

    @property
    def accelerator(self) -> str:
        """The kind of device jobs compute on here: cuda, rocm, mps or cpu."""
        return self._source.accelerator if self._source and self.gpus else "cpu"

    def use(self, anew: bool = False) -> Mapping[str, Use]:  # noqa: FBT001, FBT002  a Callable's argument has no name
        """Return the use of each GPU by UUID, cached briefly unless `anew`.

        A GPU whose use is unknown is left out.
        """
        if self._source is None or not self.gpus:
            return {}
        with self._lock:
            now = monotonic()
            old = self._asked_at is None or now - self._asked_at >= self._source.fresh_s
            if anew or old:
                self._used, self._asked_at = self._look(self._source), now
            return self._used

    def _look(self, source: GpuSource) -> Mapping[str, Use]:
        usage = source.use()
        if usage is None:
            return {}
        missing = Use(gone=True) if source.complete else Use()
        return {gpu.uuid: usage.get(gpu.uuid, missing) for gpu in self.gpus}


def _first() -> tuple[GpuSource | None, list[GpuDevice]]:
    for make in SOURCES:
        source = make()
        if gpus := source.gpus():
            return source, gpus
    return None, []
