"""AMD GPUs: from `rocm-smi` or `amd-smi`, else from the kernel's compute driver."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from forge_worker.devices import GpuDevice, Use, asked

ROOT = Path("/sys/class/kfd/kfd")

ROCM_SMI = ("--showproductname", "--showuniqueid", "--showmeminfo", "vram", "--showdriverversion")
AMD_SMI = ("static", "--asic", "--vram", "--driver")


@dataclass(frozen=True, slots=True)
class Node:
    """One GPU of the topology; `unique_id` is 0 if the card has none."""

    gpu_id: str
    unique_id: int
    target: str
    vram_mb: int


def uuid_of(unique_id: int) -> str:
    """Return the UUID that makes a GPU visible to a job in ROCm's runtime."""
    return f"GPU-{unique_id:016x}"


def nodes(root: Path = ROOT) -> list[Node]:
    """Return the GPUs of the topology in its order, without the CPU nodes."""
    folders = [place for place in _listed(root / "topology" / "nodes") if place.name.isdigit()]
    candidates = (_node(folder) for folder in sorted(folders, key=lambda place: int(place.name)))
    return [node for node in candidates if node is not None]


def gpus(root: Path = ROOT) -> list[GpuDevice]:
    """Return the GPUs that have a UUID; the kernel does not know their model names."""
    numbered = enumerate(nodes(root))
    return [
        GpuDevice(
            uuid=uuid_of(node.unique_id),
            name=f"AMD {node.target}",
            vram_mb=node.vram_mb,
            vendor="amd",
            capability=node.target,
            number=number,
        )
        for number, node in numbered
        if node.unique_id
    ]


def use(root: Path = ROOT) -> dict[str, Use]:
    """Return the processes that hold memory of each GPU, by UUID."""
    pids: dict[str, set[int]] = {node.gpu_id: set() for node in nodes(root)}
    for process in _listed(root / "proc"):
        for held in process.glob("vram_*"):
            gpu_id = held.name.removeprefix("vram_")
            if process.name.isdigit() and gpu_id in pids and _read(held) not in {"", "0"}:
                pids[gpu_id].add(int(process.name))
    return {uuid_of(n.unique_id): Use(frozenset(pids[n.gpu_id])) for n in nodes(root)}


def _node(folder: Path) -> Node | None:
    gpu_id = _read(folder / "gpu_id")
    known = _properties(folder / "properties")
    if gpu_id in {"", "0"} or not known.get("simd_count"):
        return None
    # Heap types 1 and 2 are the GPU's own memory; banks of host memory have another type.
    banks = [_properties(bank / "properties") for bank in _listed(folder / "mem_banks")]
    size = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in {1, 2})
    return Node(gpu_id, known.get("unique_id", 0), _target(known), size >> 20)


def _target(known: dict[str, int]) -> str:
    """Return the target's name: 90010 means 9.0.10, which is gfx90a."""
    version = known.get("gfx_target_version", 0)
    return f"gfx{version // 10_000}{version // 100 % 100:x}{version % 100:x}" if version else "GPU"


def _properties(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in _read(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}  # noqa: PLR2004  a name and a number


def _listed(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from list(folder.iterdir())


def _read(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="ascii").strip()
    return ""


class Rocm:
    """Run the programs once, and read the kernel's files for each question about use."""

    accelerator: ClassVar[str] = "rocm"
    fresh_s: ClassVar[float] = 1.0
    complete: ClassVar[bool] = False

    def gpus(self) -> list[GpuDevice]:
        """Return the GPUs that have a UUID; only by that can a GPU be assigned."""
        return (
            read_rocm_smi(asked("rocm-smi", *ROCM_SMI, "--json") or "")
            or read_amd_smi(asked("amd-smi", *AMD_SMI, "--json") or "")
            or gpus()
        )

    def use(self) -> dict[str, Use] | None:
        """Return the processes that hold memory of each GPU, from the kernel."""
        return use()


def read_rocm_smi(text: str) -> list[GpuDevice]:
    """Return the GPUs of `rocm-smi --json`: an object of `cardN` entries with string values."""
    document = _document(text)
    if not isinstance(document, dict):
        return []
    driver = str(_inner(document, "system").get("Driver version", ""))
    cards = [
        (name, card) for name, card in document.items() if name[:4] == "card" and name[4:].isdigit()
    ]
    cards_read = (_card(int(name[4:]), _inner(document, name), driver) for name, _ in cards)
    return [gpu for gpu in cards_read if gpu is not None]


def read_amd_smi(text: str) -> list[GpuDevice]:
    """Return the GPUs of `amd-smi static --json`: a list, below `gpu_data` in newer versions."""
    document = _document(text)
    listed = document.get("gpu_data") if isinstance(document, dict) else document
    entries_read = (_entry(entry) for entry in listed or [] if isinstance(entry, dict))
    return [gpu for gpu in entries_read if gpu is not None]


def _card(number: int, card: dict[str, Any], driver: str) -> GpuDevice | None:
    known = {str(name).lower(): str(value) for name, value in card.items()}
    unique_id = _number(known.get("unique id", ""))
    if not unique_id:
        return None
    names = (known.get(key, "") for key in ("card series", "device name", "card model"))
    target = known.get("gfx version", "")
    return GpuDevice(
        uuid=uuid_of(unique_id),
        name=_named(next((name for name in names if _is_name(name)), target or "GPU")),
        vram_mb=_number(known.get("vram total memory (b)", "")) >> 20,
        vendor="amd",
        capability=target,
        driver=driver,
        number=number,
    )


def _entry(entry: dict[str, Any]) -> GpuDevice | None:
    asic, vram = _inner(entry, "asic"), _inner(entry, "vram")
    unique_id = _number(str(asic.get("asic_serial", "")))
    if not unique_id:
        return None
    target = str(asic.get("target_graphics_version", ""))
    name = str(asic.get("market_name", ""))
    return GpuDevice(
        uuid=uuid_of(unique_id),
        name=_named(name if _is_name(name) else target or "GPU"),
        vram_mb=_size_mb(vram.get("size")),
        vendor="amd",
        capability=target,
        driver=str(_inner(entry, "driver").get("version", "")),
        number=_number(str(entry.get("gpu", 0))),
    )


def _size_mb(size: object) -> int:
    """Return MiB, which the program calls MB; older versions write one string, `16368 MB`."""
    if isinstance(size, dict):
        size = size.get("value")
    return _number(str(size).partition(" ")[0])


def _named(name: str) -> str:
    return name if name.upper().startswith("AMD") else f"AMD {name}"


def _is_name(text: str) -> bool:
    return text not in {"", "N/A"} and not text.startswith("0x")


def _number(text: str) -> int:
    with suppress(ValueError):
        return int(text, 0)
    return 0


def _inner(outer: dict[str, Any], name: str) -> dict[str, Any]:
    inner = outer.get(name)
    return inner if isinstance(inner, dict) else {}


def _document(text: str) -> Any:  # noqa: ANN401 - whatever JSON there is
    """Return the first JSON value in a text, since some versions print warnings around it."""
    for start in _starts(text):
        with suppress(ValueError):
            return json.JSONDecoder().raw_decode(text, start)[0]
    return None


def _starts(text: str) -> Iterator[int]:
    return (place for place, char in enumerate(text) if char in "{[")
