"""NVIDIA GPUs through `nvidia-smi`, used if NVML cannot be loaded."""

import re
from collections.abc import Iterator
from typing import ClassVar

from forge_worker.devices.gpu import GpuDevice, Use, asked

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


class NvidiaSmi:
    """Run the program for each question, which takes about a second."""

    accelerator: ClassVar[str] = "cuda"
    fresh_s: ClassVar[float] = 5.0
    complete: ClassVar[bool] = False

    def gpus(self) -> list[GpuDevice]:
        """Return the GPUs; a GPU in MIG mode is replaced by its slices."""
        rows = _rows("gpu", FIELDS) or _rows("gpu", OLD_FIELDS) or []
        found = [_gpu(row) for row in rows if row["uuid"].startswith("GPU-")]
        sliced = {row["uuid"] for row in rows if row.get("mig.mode.current") == "Enabled"}
        slices = _slices(asked("nvidia-smi", "-L") or "", found) if sliced else {}
        return [
            part
            for gpu in found
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


def _gpu(row: dict[str, str]) -> GpuDevice:
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


def _slices(listing: str, found: list[GpuDevice]) -> dict[str, list[GpuDevice]]:
    """Return the slices that `nvidia-smi -L` lists, by the UUID of their GPU."""
    parents = {gpu.number: gpu for gpu in found}
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
