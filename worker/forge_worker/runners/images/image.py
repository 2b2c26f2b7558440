"""Get an image, or report why it is missing."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import stamina
from docker.errors import APIError, ImageNotFound, NotFound
from forge_schema.model.quantities import counted, duration_text, size_text

from forge_worker.runners.docker.engine import is_silence
from forge_worker.runners.images.reference import ID, Reference, parse
from forge_worker.runners.runner import ImageMissing, PullFailed, StartFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from docker import DockerClient

    from forge_worker.runners.docker.hardening import DockerPolicy

EVERY_S = 5.0
DONE = {"Pull complete", "Already exists"}
NO_ROOM = "no space left on device"
PULL_ATTEMPTS = 3
# A registry's final answers; anything else may succeed later or on another machine.
REFUSED = re.compile(
    r"not found|unknown|no such|does not exist|denied|unauthorized|forbidden|no matching manifest"
    r"|invalid reference",
    re.IGNORECASE,
)
# It looks like a refusal, but means that the registry was not reached.
UNASKED = re.compile(r"no such host|lookup .* on ", re.IGNORECASE)


@dataclass
class PullProgress:
    """Reports the progress of a pull, at most every `every_s` seconds."""

    name: str
    say: Callable[[str], None]
    every_s: float = EVERY_S
    _layers: dict[str, tuple[int, int]] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _began: float = field(default_factory=time.monotonic)
    _noted_at: float | None = None

    def __call__(self, step: dict[str, Any]) -> None:
        """Process one step of the pull."""
        layer, status = step.get("id", ""), step.get("status", "")
        detail = step.get("progressDetail")
        if layer and detail is not None:
            self._layers.setdefault(layer, (0, 0))
        if layer and status in DONE:
            self._layers.setdefault(layer, (0, 0))
            self._done.add(layer)
        if status == "Downloading" and detail:
            self._layers[layer] = (detail.get("current", 0), detail.get("total", 0))
        if status == "Download complete" and layer in self._layers:
            total = self._layers[layer][1]
            self._layers[layer] = (total, total)
        self._say_now_and_then()

    def end(self) -> None:
        """Report what was pulled in total."""
        took_s = time.monotonic() - self._began
        self.say(f"pulled {self.name}{self._summary()} in {duration_text(took_s)}")

    def _say_now_and_then(self) -> None:
        if self._noted_at is None:
            self._noted_at = time.monotonic()
            self.say(f"pulling {self.name}")
        elif time.monotonic() - self._noted_at >= self.every_s:
            self._noted_at = time.monotonic()
            self.say(f"pulling {self.name}{self._summary()}")

    def _summary(self) -> str:
        if not self._done and not any(total for _, total in self._layers.values()):
            # Podman tells neither sizes nor which layers are unpacked.
            return ""
        came = sum(current for current, _ in self._layers.values())
        total = sum(total for _, total in self._layers.values())
        layers = counted(len(self._layers), "layer")
        return f": {len(self._done)} of {layers}, {size_text(came)} of {size_text(total)}"


def _unheard(_step: dict[str, Any]) -> None:
    """Ignore a step of a pull."""


def ensure_image(
    client: DockerClient,
    name: str | None,
    policy: DockerPolicy,
    hear: Callable[[dict[str, Any]], None] = _unheard,
) -> dict[str, Any]:
    """Return the engine's description of the image, pulling it if needed and allowed.

    `hear` gets each step of the pull; what it raises ends the pull. An image given by its id is
    only looked up locally.

    Raises:
        ImageMissing: no image is named, or it is not here and cannot be fetched.
        StartFailed: it is not here, and its registry did not answer.
    """
    name = name or policy.default_image
    if not name:
        raise ImageMissing(
            "the job names no image, and this worker has no default image",
            hint="submit it with an image, or give the worker a default image",
        )
    if ID.fullmatch(name):
        return _of_id(client, name)
    reference = parse(name)
    # An image pinned by a digest cannot have changed.
    stale = policy.pull == "always" and reference.digest is None
    here = None if stale else find(client, reference)
    if here is None and policy.pull == "never":
        raise ImageMissing(
            f"the image {name} is not on this worker, which may not pull images",
            hint="load it there with `docker load` or `docker build`, or allow pulls",
        )
    return here or _pulled(client, name, reference, hear)


def find(client: DockerClient, reference: Reference) -> dict[str, Any] | None:
    """Return the local image with exactly this name.

    An engine would also accept part of an id, and Podman a short name of any registry; it finds
    what was made here by the short name only.
    """
    for name in (reference.full, reference.local):
        with suppress(ImageNotFound):
            attrs: dict[str, Any] = client.images.get(name).attrs
            names = [*(attrs.get("RepoTags") or []), *(attrs.get("RepoDigests") or [])]
            if reference.is_in(names):
                return attrs
    return None


def _of_id(client: DockerClient, name: str) -> dict[str, Any]:
    try:
        attrs: dict[str, Any] = client.images.get(name).attrs
    except ImageNotFound as error:
        raise removed(name) from error
    return attrs


def removed(name: str) -> StartFailed:
    """Return the error for an image, named by its id, that somebody has removed."""
    return StartFailed(
        f"the image {name[:19]} is no longer on this machine",
        hint="something removed it after its preparation; the next attempt prepares it again",
    )


def _pulled(
    client: DockerClient, name: str, reference: Reference, hear: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    refusal, final = _refusal(client, reference.full, hear)
    image = None if refusal else find(client, reference)
    if image is None:
        # A full disk is not the registry's fault.
        retried = StartFailed if NO_ROOM in refusal else PullFailed
        raise (ImageMissing if final else retried)(
            f"the image {name} could not be pulled: {refusal or 'it is missing after the pull'}",
            hint="check its name and tag, the worker's login to its registry, and the network",
        )
    return image


def _refusal(
    client: DockerClient, name: str, hear: Callable[[dict[str, Any]], None]
) -> tuple[str, bool]:
    """Pull; return the error, or "", and whether it is final."""
    try:
        refusal = _pull(client, name, hear)
    except NotFound as error:
        return str(error.explanation or error), True
    except APIError as error:
        refusal = str(error.explanation or error)
    return refusal, bool(REFUSED.search(refusal) and not UNASKED.search(refusal))


def _may_pass(error: Exception) -> bool:
    return isinstance(error, APIError) and is_silence(error)


@stamina.retry(on=_may_pass, attempts=PULL_ATTEMPTS, wait_initial=0.5, timeout=None)
def _pull(client: DockerClient, name: str, hear: Callable[[dict[str, Any]], None]) -> str:
    """Pull the image; return the engine's error, or ""."""
    for step in client.api.pull(name, stream=True, decode=True):
        if "error" in step:
            return str(step["error"])
        hear(step)
    return ""
