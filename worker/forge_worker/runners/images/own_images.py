"""The images that Forge itself built or loaded: found by name, removed by last use.

An image is tagged again at each use, so the time of its last tag is its last use. Podman does not
keep that time, and containerd's store keeps that of the first tag of each name; there, the image
gets the time as one more tag. No other image is ever removed, nor one that a container uses, which
the engine refuses.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import structlog
from docker.errors import APIError

from forge_worker.runners.docker.container import FAILED
from forge_worker.runners.images.image import find
from forge_worker.runners.images.reference import OWN, Reference, is_own, parse

if TYPE_CHECKING:
    from docker import DockerClient

BUILD, TAR = OWN
# A job that has just got an image may not have started its container yet.
FRESH_S = 900.0
USED = re.compile(r"\.used-(\d+)$")

log = structlog.get_logger(__name__)


def kept(client: DockerClient, name: str) -> dict[str, Any] | None:
    """Return one of Forge's images by name, if it is here, and mark it as used."""
    reference = parse(name)
    image = find(client, reference)
    if image is not None:
        before = _time(image)
        client.api.tag(image["Id"], reference.repository, reference.tag)
        if _tagged_at(client, image["Id"]) <= before:
            _mark(client, image, reference)
    return image


def _mark(client: DockerClient, image: dict[str, Any], reference: Reference) -> None:
    """Name an image after its use now, and by no earlier one."""
    mark = f"{reference.tag}.used-{int(time.time() * 1000)}"
    client.api.tag(image["Id"], reference.repository, mark)
    for name in image.get("RepoTags") or []:
        if USED.search(name) and not name.endswith(f":{mark}"):
            _removed(client, name)


@dataclass(frozen=True, slots=True)
class _Image:
    """An image, with the bytes of each of its layers by what identifies it in all images.

    `names` are Forge's; `stays` is whether it has none, or others too.
    """

    id: str
    names: tuple[str, ...]
    stays: bool
    layers: dict[int, float]


def make_room(client: DockerClient, max_bytes: int) -> list[str]:
    """Remove Forge's least recently used images until the rest fits; return their names."""
    try:
        listed = client.api.images()
        if sum(image["Size"] for image in listed if _names(image)) <= max_bytes:
            return []
        images = [_image(client, each) for each in listed]
        ours = sorted((_used_at(client, each), each.id, each) for each in images if each.names)
    except FAILED:
        # Another process may have removed one; this can wait for the next image.
        return []
    held = Counter(layer for each in images for layer in each.layers)
    foreign = {layer for each in images if each.stays for layer in each.layers}
    sizes = {layer: size for _, _, each in ours for layer, size in each.layers.items()}
    excess = sum(size for layer, size in sizes.items() if layer not in foreign) - max_bytes
    removed: list[str] = []
    for used_at, _, each in ours:
        if excess <= 0 or time.time() - used_at < FRESH_S:
            break
        gone = [name for name in each.names if _removed(client, name)]
        removed += gone
        if len(gone) == len(each.names) and not each.stays:
            held.subtract(dict.fromkeys(each.layers, 1))
            excess -= sum(size for layer, size in each.layers.items() if not held[layer])
    if removed:
        log.info("images_removed", images=removed)
    return removed


def _names(image: dict[str, Any]) -> tuple[str, ...]:
    """Return Forge's names of an image; marks first, so that one that cannot go keeps its name."""
    names = (name for name in image.get("RepoTags") or [] if is_own(name, OWN))
    return tuple(sorted(names, key=lambda name: USED.search(name) is None))


def _image(client: DockerClient, listed: dict[str, Any]) -> _Image:
    """Return a listed image with its layers.

    What engines call shared is of no use: since version 25, a Docker engine counts the steps of a
    build as images that share all they have.
    """
    layers: dict[int, float] = {}
    below = 0
    # A containerd store has none for an image that came without.
    for step in reversed(client.api.history(listed["Id"]) or []):  # type: ignore[no-untyped-call]  # the stubs lack types
        below = hash((below, step["Created"], step["CreatedBy"], step["Size"]))
        layers[below] = step["Size"]
    # containerd keeps the packed layers too, which are in the sum only.
    whole = sum(layers.values())
    layers = {it: size * listed["Size"] / whole for it, size in layers.items() if whole}
    names = _names(listed)
    stays = not names or len(names) < len(listed["RepoTags"])
    return _Image(listed["Id"], names, stays, layers or {hash(listed["Id"]): listed["Size"]})


def _used_at(client: DockerClient, image: _Image) -> float:
    marked = [float(match[1]) / 1000 for name in image.names if (match := USED.search(name))]
    return max([_tagged_at(client, image.id), *marked])


def _tagged_at(client: DockerClient, image: str) -> float:
    with suppress(APIError):
        return _time(client.images.get(image).attrs)
    return 0.0


def _time(image: dict[str, Any]) -> float:
    """Return when an image was last tagged; 0 if the engine does not say."""
    with suppress(ValueError, OverflowError, KeyError):
        return max(0.0, datetime.fromisoformat(image["Metadata"]["LastTagTime"]).timestamp())
    return 0.0


def _removed(client: DockerClient, name: str) -> bool:
    try:
        client.api.remove_image(name)
    except APIError:
        return False
    return True
