"""The images that Forge itself built or loaded: found by name, removed by last use.

An image is tagged again at each use, so the time of its last tag is its last use. No other image is
ever removed, nor one that a container uses, which the engine refuses.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import structlog
from docker.errors import APIError

from forge_worker.runners.docker.container import FAILED
from forge_worker.runners.images.image import find
from forge_worker.runners.images.reference import OWN, parse

if TYPE_CHECKING:
    from docker import DockerClient

BUILD, TAR = OWN
# A job that has just got an image may not have started its container yet.
FRESH_S = 900.0

log = structlog.get_logger(__name__)


def kept(client: DockerClient, name: str) -> dict[str, Any] | None:
    """Return one of Forge's images by name, if it is here, and mark it as used."""
    reference = parse(name)
    found = find(client, reference)
    if found is not None:
        client.api.tag(found["Id"], reference.repository, reference.tag)
    return found


def make_room(client: DockerClient, max_bytes: int) -> list[str]:
    """Remove Forge's least recently used images until the rest fits; return their names."""
    try:
        listed = client.df()["Images"] or []
    except FAILED:
        # The engine computes one sum at a time; this one can wait for the next image.
        return []
    ours = sorted(_used(client, image) for image in listed if _names(image))
    excess = sum(size for _, size, _ in ours) - max_bytes
    removed: list[str] = []
    for used_at, size, names in ours:
        if excess <= 0 or time.time() - used_at < FRESH_S:
            break
        if gone := [name for name in names if _removed(client, name)]:
            removed += gone
            excess -= size
    if removed:
        log.info("images_removed", images=removed)
    return removed


def _names(image: dict[str, Any]) -> list[str]:
    names = image.get("RepoTags") or []
    return [name for name in names if name.partition(":")[0] in OWN]


def _used(client: DockerClient, image: dict[str, Any]) -> tuple[float, int, list[str]]:
    """Return an image's last use, its unshared size in bytes, and its names."""
    alone = image["Size"] - max(0, image.get("SharedSize") or 0)
    tagged = ""
    with suppress(APIError):
        tagged = client.images.get(image["Id"]).attrs["Metadata"]["LastTagTime"]
    return _seconds(tagged), alone, _names(image)


def _seconds(text: str) -> float:
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text).timestamp()
    return 0.0


def _removed(client: DockerClient, name: str) -> bool:
    try:
        client.api.remove_image(name)
    except APIError:
        return False
    return True
