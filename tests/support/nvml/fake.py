"""Simulated GPUs: the state that the tests' own libnvidia-ml serves to the real pynvml."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from ctypes import CDLL
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pynvml
from support.services import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

SOURCE = Path(__file__).with_name("nvml.c")
VARIABLE = "FAKE_NVML"
MIB = 1 << 20


def build(folder: Path) -> Path:
    """Compile the library into `folder`, with the file name that pynvml looks for."""
    require(shutil.which("gcc"), "gcc, for the tests' NVML")
    library = folder / "libnvidia-ml.so.1"
    flags = ["-shared", "-fPIC", "-O1", "-fvisibility=hidden", "-Wall", "-pthread"]
    subprocess.run(["gcc", *flags, "-o", str(library), str(SOURCE)], check=True)
    return library


@dataclass
class FakeNvml:
    """A machine's GPUs, which every process with this `environment` sees."""

    library: Path
    state: Path
    driver: str = "550.54.15"
    _gpus: dict[str, dict[str, object]] = field(default_factory=dict)
    _slices: dict[str, dict[str, object]] = field(default_factory=dict)
    _processes: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    _events: list[tuple[str, int, int]] = field(default_factory=list)
    _errors: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._write()

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which another process finds the library and its state."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), VARIABLE: str(self.state)}

    def gpu(self, uuid: str, name: str = "NVIDIA A100", vram_mb: int = 40_960) -> str:
        """Add an idle GPU, and return its UUID."""
        idle = {"utilisation": 0, "memory": 0, "power": 50_000, "temperature": 30, "energy": 0}
        known = {"name": name, "vram": vram_mb * MIB, "capability": "8.0", "ecc": 0}
        self._gpus[uuid] = {**known, **idle}
        self._write()
        return uuid

    def slice(self, uuid: str, parent: str, name: str, vram_mb: int) -> str:
        """Add a MIG slice to a GPU, which enters MIG mode, and return the slice's UUID."""
        self._gpus[parent]["mig"] = 1
        known = {"name": name, "vram": vram_mb * MIB, "memory": 0, "capability": "8.0"}
        self._slices[uuid] = {"parent": parent, "instance": len(self._slices) + 1, **known}
        self._write()
        return uuid

    def set(self, uuid: str, **values: object) -> None:
        """Change a GPU's readings; None means not supported.

        `utilisation` in percent, `memory` in bytes, `power` in milliwatts, `temperature` in °C,
        `energy` in millijoules, `ecc` in uncorrected errors, `mig` 0 or 1.
        """
        of = self._gpus.get(uuid) or self._slices[uuid]
        of.update(values)
        self._write()

    def process(self, uuid: str, pid: int, memory: int, kind: str = "compute") -> None:
        """Add a process that uses a GPU and this many bytes of its memory; `kind` or `graphics`."""
        self._processes[uuid, pid] = (kind, memory)
        self._write()

    def stranger(self, uuid: str, memory: int = 1024 * MIB, pid: int = 1) -> None:
        """Add a process that uses a GPU and belongs to no job."""
        self.set(uuid, memory=memory)
        self.process(uuid, pid, memory)

    def gone(self, uuid: str, pid: int = 1) -> None:
        """Remove a process from a GPU."""
        del self._processes[uuid, pid]
        self.set(uuid, memory=0)

    def xid(self, uuid: str, code: int) -> None:
        """Report an XID of a GPU to all listeners."""
        self.event(uuid, pynvml.nvmlEventTypeXidCriticalError, code)

    def event(self, uuid: str, kind: int, data: int = 0) -> None:
        """Report an event of a GPU to all listeners."""
        self._events.append((uuid, kind, data))
        self._write()

    def fail(self, uuid: str, error: int | None = pynvml.NVML_ERROR_GPU_IS_LOST) -> None:
        """Make every call for a GPU fail with an error, until that is set to None."""
        if error is None:
            self._errors.pop(uuid, None)
        else:
            self._errors[uuid] = error
        self._write()

    def remove(self, uuid: str) -> None:
        """Remove a GPU or a slice, as if the machine had been started without it."""
        self._gpus.pop(uuid, None)
        self._slices.pop(uuid, None)
        self._write()

    @contextmanager
    def here(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Let this process see the GPUs while the block runs."""
        with patch.context() as inside:
            inside.setattr(pynvml, "nvmlLib", CDLL(str(self.library)))
            inside.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
            inside.setenv(VARIABLE, str(self.state))
            yield

    def _write(self) -> None:
        lines = [["driver", self.driver]]
        for kind, known in (("gpu", self._gpus), ("slice", self._slices)):
            lines += [[kind, uuid, *_pairs(values)] for uuid, values in known.items()]
        for (uuid, pid), (kind, memory) in self._processes.items():
            lines.append([kind, uuid, str(pid), str(memory)])
        for number, (uuid, type_, data) in enumerate(self._events, 1):
            lines.append(["event", str(number), uuid, str(type_), str(data)])
        lines += [["fail", uuid, str(error)] for uuid, error in self._errors.items()]
        # Readers may open it at any moment, so it must never be half written.
        new = self.state.with_suffix(".new")
        new.write_text("".join("\t".join(line) + "\n" for line in lines))
        new.replace(self.state)


def _pairs(values: dict[str, object]) -> list[str]:
    return [f"{key}={value}" for key, value in values.items() if value is not None]
