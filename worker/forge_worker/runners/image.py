"""Get an image, or say why there is none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import stamina
from docker.errors import APIError, ImageNotFound, NotFound

from forge_worker.runners.engine import is_silence
from forge_worker.runners.runner import ImageMissing, StartFailed

if TYPE_CHECKING:
    from docker import DockerClient

    from forge_worker.runners.hardening import DockerPolicy

PULL_ATTEMPTS = 3
# What a registry answers for good; anything else may be another tomorrow, on another machine.
REFUSED = re.compile(
    r"not found|unknown|no such|does not exist|denied|unauthorized|forbidden|no matching manifest"
    r"|invalid reference",
    re.IGNORECASE,
)
# It has the words of a refusal, and says that nobody was asked.
UNASKED = re.compile(r"no such host|lookup .* on ", re.IGNORECASE)


def ensure_image(client: DockerClient, name: str | None, policy: DockerPolicy) -> dict[str, Any]:
    """Return the image's description as the engine gives it, after a pull where one is allowed.

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
    here = None if policy.pull == "always" else _inspect(client, name)
    if here is None and policy.pull == "never":
        raise ImageMissing(
            f"the image {name} is not on this worker, which may not pull images",
            hint="Load it there with `docker load` or `docker build`, or allow pulls.",
        )
    return here or _pulled(client, name)


def _inspect(client: DockerClient, name: str) -> dict[str, Any] | None:
    try:
        return client.images.get(name).attrs
    except ImageNotFound:
        return None


def _pulled(client: DockerClient, name: str) -> dict[str, Any]:
    refusal, final = _refusal(client, name)
    found = None if refusal else _inspect(client, name)
    if found is None:
        raise (ImageMissing if final else StartFailed)(
            f"the image {name} could not be pulled: {refusal or 'it is not there afterwards'}",
            hint="Check its name and tag, the worker's login to its registry, and the network.",
        )
    return found


def _refusal(client: DockerClient, name: str) -> tuple[str, bool]:
    """Pull; return what was complained of, or "", and whether that is the last word."""
    try:
        refusal = _pull(client, name)
    except NotFound as error:
        return str(error.explanation or error), True
    except APIError as error:
        refusal = str(error.explanation or error)
    return refusal, bool(REFUSED.search(refusal) and not UNASKED.search(refusal))


def _may_pass(error: Exception) -> bool:
    return isinstance(error, APIError) and is_silence(error)


@stamina.retry(on=_may_pass, attempts=PULL_ATTEMPTS, wait_initial=0.5, timeout=None)
def _pull(client: DockerClient, name: str) -> str:
    """Pull the image; return what the engine complained of while it did, or ""."""
    steps = client.api.pull(name, stream=True, decode=True)
    return next((step["error"] for step in steps if "error" in step), "")
