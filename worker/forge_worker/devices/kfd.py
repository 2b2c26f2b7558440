"""AMD GPUs as the kernel's compute driver lists them in /sys/class/kfd."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forge_worker.devices.gpu import Gpu, Use

ROOT = Path("/sys/class/kfd/kfd")


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
    found = (_node(folder) for folder in sorted(folders, key=lambda place: int(place.name)))
    return [node for node in found if node is not None]


def gpus(root: Path = ROOT) -> list[Gpu]:
    """Return the GPUs that have a UUID; the kernel does not know their model names."""
    numbered = enumerate(nodes(root))
    return [
        Gpu(
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
