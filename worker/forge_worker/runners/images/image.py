"""Get an image, or say why there is none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import stamina
from docker.errors import APIError, ImageNotFound, NotFound

from forge_worker.runners.docker.engine import is_silence
from forge_worker.runners.images.reference import ID, Reference, parse
from forge_worker.runners.runner import ImageMissing, PullFailed, StartFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from docker import DockerClient

    from forge_worker.runners.docker.hardening import DockerPolicy

NO_ROOM = "no space left on device"
PULL_ATTEMPTS = 3
# What a registry answers for good; anything else may be another tomorrow, on another machine.
REFUSED = re.compile(
    r"not found|unknown|no such|does not exist|denied|unauthorized|forbidden|no matching manifest"
    r"|invalid reference",
    re.IGNORECASE,
)
# It has the words of a refusal, and says that nobody was asked.
UNASKED = re.compile(r"no such host|lookup .* on ", re.IGNORECASE)


def _unheard(_step: dict[str, Any]) -> None:
    """Hear nothing of a pull."""


def ensure_image(
    client: DockerClient,
    name: str | None,
    policy: DockerPolicy,
    hear: Callable[[dict[str, Any]], None] = _unheard,
) -> dict[str, Any]:
    """Return the image's description as the engine gives it, after a pull where one is allowed.

    `hear` is told each step of the pull, and ends it by what it raises. An image of a given id is
    not looked for anywhere else.

    Raises:
        ImageMissing: none was named, or it is neither here nor to be had.
        StartFailed: it is not here, and its registry could not be asked.
    """
    name = name or policy.default_image
    if not name:
        raise ImageMissing(
            "the job names no image and this worker has no default one",
            hint="Submit it with an image, or give the worker a default image.",
        )
    if ID.fullmatch(name):
        return _of_id(client, name)
    reference = parse(name)
    # What a digest pins cannot have changed.
    stale = policy.pull == "always" and reference.digest is None
    here = None if stale else find(client, reference)
    if here is None and policy.pull == "never":
        raise ImageMissing(
            f"the image {name} is not on this worker, which may not pull images",
            hint="Load it there with `docker load` or `docker build`, or allow pulls.",
        )
    return here or _pulled(client, name, reference, hear)


def find(client: DockerClient, reference: Reference) -> dict[str, Any] | None:
    """Return the image that has exactly this name here; the engine would take part of an id too."""
    try:
        found: dict[str, Any] = client.images.get(reference.local).attrs
    except ImageNotFound:
        return None
    names = [*(found.get("RepoTags") or []), *(found.get("RepoDigests") or [])]
    return found if reference.local in names else None


def _of_id(client: DockerClient, name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = client.images.get(name).attrs
    except ImageNotFound as error:
        raise StartFailed(
            f"the image {name[:19]} is not on this machine any more",
            hint="something removed it after it was made ready; the next attempt makes it again",
        ) from error
    return found


def _pulled(
    client: DockerClient,
    name: str,
    reference: Reference,
    hear: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    refusal, final = _refusal(client, reference.local, hear)
    found = None if refusal else find(client, reference)
    if found is None:
        # A machine without room for an image is no fault of the image's registry.
        retried = StartFailed if NO_ROOM in refusal else PullFailed
        raise (ImageMissing if final else retried)(
            f"the image {name} could not be pulled: {refusal or 'it is not there afterwards'}",
            hint="Check its name and tag, the worker's login to its registry, and the network.",
        )
    return found


def _refusal(
    client: DockerClient, name: str, hear: Callable[[dict[str, Any]], None]
) -> tuple[str, bool]:
    """Pull; return what was complained of, or "", and whether that is the last word."""
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
    """Pull the image; return what the engine complained of while it did, or ""."""
    for step in client.api.pull(name, stream=True, decode=True):
        if "error" in step:
            return str(step["error"])
        hear(step)
    return ""
