"""GPUs for a container: by the engine's CDI specs where they name them, else by device request.

CDI (Container Device Interface) is a file in which a vendor's toolkit says what a container needs
for each of its devices.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from docker.types import DeviceRequest

from forge_worker.runners.runner import StartFailed

CDI = "cdi"
KINDS = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
# Specs are written by programs, as JSON or as plain YAML, of which this reads what it needs.
KIND = re.compile(r"""["']?\bkind["']?\s*:\s*["']?([^"'\s,}]+)""")
NAME = re.compile(r"""["']?\bname["']?\s*:\s*["']?([^"'\s,}]+)""")


def listed(info: Mapping[str, Any]) -> frozenset[str]:
    """Return the devices that an engine can give by CDI, as `kind=name`.

    `info` is the engine's own: from version 25 on it names the folders of its specs, if any.
    """
    places = [Path(place) for place in info.get("CDISpecDirs") or []]
    files = (file for place in places for file in _specs(place))
    return frozenset(name for file in files for name in _devices(file))


def requests(uuids: tuple[str, ...], vendor: str, by_cdi: frozenset[str]) -> list[DeviceRequest]:
    """Return what gives a container its GPUs, and no others.

    Raises:
        StartFailed: this engine has no way to give them.
    """
    if not uuids:
        return []
    names = [f"{KINDS.get(vendor, '')}={uuid}" for uuid in uuids]
    if by_cdi.issuperset(names):
        return [DeviceRequest(driver=CDI, device_ids=names)]
    if vendor != "nvidia":
        raise StartFailed(
            f"this engine has no CDI spec that names the GPU {uuids[0]}",
            hint="install the vendor's container toolkit, or run the worker in process mode",
        )
    return [DeviceRequest(device_ids=list(uuids), capabilities=[["gpu"]])]


def _specs(place: Path) -> Iterable[Path]:
    with suppress(OSError):
        return sorted(file for file in place.iterdir() if file.suffix in {".json", ".yaml"})
    return []


def _devices(file: Path) -> list[str]:
    with suppress(OSError, UnicodeDecodeError):
        text = file.read_text(encoding="utf-8")
        kind = KIND.search(text)
        if kind and kind[1] in KINDS.values():
            return [f"{kind[1]}={name}" for name in NAME.findall(text)]
    return []
