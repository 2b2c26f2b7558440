"""AMD GPUs: from `rocm-smi` or `amd-smi`, else from the kernel."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

from forge_worker.devices import kfd
from forge_worker.devices.gpu import Gpu, Use
from forge_worker.devices.program import asked

ROCM_SMI = ("--showproductname", "--showuniqueid", "--showmeminfo", "vram", "--showdriverversion")
AMD_SMI = ("static", "--asic", "--vram", "--driver")


class Rocm:
    """Run the programs once, and read the kernel's files for each question about use."""

    accelerator: ClassVar[str] = "rocm"
    fresh_s: ClassVar[float] = 1.0
    complete: ClassVar[bool] = False

    def gpus(self) -> list[Gpu]:
        """Return the GPUs that have a UUID; only by that can a GPU be assigned."""
        return (
            read_rocm_smi(asked("rocm-smi", *ROCM_SMI, "--json") or "")
            or read_amd_smi(asked("amd-smi", *AMD_SMI, "--json") or "")
            or kfd.gpus()
        )

    def use(self) -> dict[str, Use] | None:
        """Return the processes that hold memory of each GPU, from the kernel."""
        return kfd.use()


def read_rocm_smi(text: str) -> list[Gpu]:
    """Return the GPUs of `rocm-smi --json`: an object of `cardN` entries with string values."""
    told = _document(text)
    if not isinstance(told, dict):
        return []
    driver = str(_inner(told, "system").get("Driver version", ""))
    cards = [
        (name, card) for name, card in told.items() if name[:4] == "card" and name[4:].isdigit()
    ]
    found = (_card(int(name[4:]), _inner(told, name), driver) for name, _ in cards)
    return [gpu for gpu in found if gpu is not None]


def read_amd_smi(text: str) -> list[Gpu]:
    """Return the GPUs of `amd-smi static --json`: a list, below `gpu_data` in newer versions."""
    told = _document(text)
    listed = told.get("gpu_data") if isinstance(told, dict) else told
    found = (_entry(entry) for entry in listed or [] if isinstance(entry, dict))
    return [gpu for gpu in found if gpu is not None]


def _card(number: int, card: dict[str, Any], driver: str) -> Gpu | None:
    known = {str(name).lower(): str(value) for name, value in card.items()}
    unique_id = _number(known.get("unique id", ""))
    if not unique_id:
        return None
    names = (known.get(key, "") for key in ("card series", "device name", "card model"))
    target = known.get("gfx version", "")
    return Gpu(
        uuid=kfd.uuid_of(unique_id),
        name=_named(next((name for name in names if _is_name(name)), target or "GPU")),
        vram_mb=_number(known.get("vram total memory (b)", "")) >> 20,
        vendor="amd",
        capability=target,
        driver=driver,
        number=number,
    )


def _entry(entry: dict[str, Any]) -> Gpu | None:
    asic, vram = _inner(entry, "asic"), _inner(entry, "vram")
    unique_id = _number(str(asic.get("asic_serial", "")))
    if not unique_id:
        return None
    target = str(asic.get("target_graphics_version", ""))
    name = str(asic.get("market_name", ""))
    return Gpu(
        uuid=kfd.uuid_of(unique_id),
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
