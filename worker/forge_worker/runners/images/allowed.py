"""Which images the operator of a worker lets jobs use."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from forge_worker.runners.images.reference import ID, OWN, parse
from forge_worker.runners.runner import ImageMissing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forge_worker.runners.docker.hardening import DockerPolicy


class ImageRefused(ImageMissing):
    """The operator of this worker does not allow the image."""

    code = "image_refused"


def check_name(name: str, policy: DockerPolicy) -> None:
    """Let through an image that a job may name; the worker's default image is always one.

    Raises:
        ImageRefused: it may not.
        ImageMissing: it is no name.
    """
    if name == policy.default_image:
        return
    # Another owner's project or tar must not be had by the number of its image.
    if ID.fullmatch(name):
        raise ImageRefused(
            "an image is named, and not given by its id", hint="write name:tag or name@sha256:…"
        )
    reference = parse(name)
    if reference.repository.rpartition("/")[2] in OWN:
        raise ImageRefused(
            f"{name} is a name of the worker's own",
            hint="submit the Dockerfile or the saved tar that it was made from",
        )
    _check(name, {name, *reference.spellings}, policy)


def check_tar(digest: str, policy: DockerPolicy) -> None:
    """Let through a saved image, which to the operator's globs is `tar:` and its SHA-256.

    Raises:
        ImageRefused: it may not be used.
    """
    _check(f"the saved image {digest[:12]}", {f"tar:{digest}"}, policy)


def check_build(policy: DockerPolicy) -> None:
    """Let through a build.

    Raises:
        ImageRefused: this worker builds nothing.
    """
    if not policy.allow_builds:
        raise ImageRefused(
            "this worker builds no images",
            hint="its operator may set FORGE_ALLOW_BUILDS=true; or submit with --image",
        )


def _check(what: str, spellings: Iterable[str], policy: DockerPolicy) -> None:
    globs = policy.allowed_images
    if not any(fnmatchcase(name, glob) for name in spellings for glob in globs):
        allowed = ", ".join(globs) or "none"
        raise ImageRefused(
            f"this worker's operator does not allow {what}; allowed are {allowed}",
            hint="use one of these, or select another worker by a label",
        )
