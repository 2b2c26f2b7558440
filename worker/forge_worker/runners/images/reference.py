"""Names of images, such as `debian@sha256:…`, and which of them the operator allows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from forge_worker.runners.runner import ImageMissing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forge_worker.runners.docker.hardening import DockerPolicy

# Repositories of Forge's own images, whose names no job may use.
OWN = ("forge-build", "forge-tar")
# That of the containers whose network a job joins.
PAUSE = "forge-pause"
ID = re.compile(r"sha256:[0-9a-f]{64}")
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_NAME = re.compile(
    rf"(?P<repository>(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_DEFAULTS = ("index.docker.io/", "docker.io/", "library/")


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed name; `repository` is as the engine shows it, without the default registry."""

    repository: str
    tag: str | None
    digest: str | None

    @property
    def full(self) -> str:
        """The one name that means the same to every engine, as `docker.io/library/debian:12`."""
        return _full(self.local)

    def is_in(self, listed: Iterable[str]) -> bool:
        """Return whether an engine lists the image among these names, however it writes them.

        Docker leaves out its own registry; Podman writes it, or `localhost` for what was made here.
        """
        meant = {self.full, *([f"localhost/{self.local}"] if _is_short(self.repository) else [])}
        return not meant.isdisjoint(map(normal, listed))

    @property
    def local(self) -> str:
        """The name without the default registry, as Docker lists the image."""
        if self.digest:
            return f"{self.repository}@{self.digest}"
        return f"{self.repository}:{self.tag or 'latest'}"

    @property
    def spellings(self) -> set[str]:
        """Every way to write this name."""
        tagged = f"{self.repository}:{self.tag or 'latest'}" if not self.digest else self.local
        short = {tagged, self.local}
        if self.tag is None and self.digest is None:
            short.add(self.repository)
        return short | {_full(name) for name in short}


def parse(name: str) -> Reference:
    """Parse a name; `ImageMissing` if it is not an image's name."""
    match = None if ID.fullmatch(name) else _NAME.fullmatch(name)
    if match is None:
        raise ImageMissing(
            f"{name!r} is not the name of an image",
            hint="write it as for docker pull: name:tag, or name@sha256:… to pin it",
        )
    repository = match["repository"]
    for default in _DEFAULTS:
        repository = repository.removeprefix(default)
    return Reference(repository, match["tag"], match["digest"])


def normal(listed: str) -> str:
    """Return an engine's name for an image in full; "" if it is none, as `<none>:<none>`."""
    try:
        return parse(listed).full
    except ImageMissing:
        return ""


def is_own(listed: str, repositories: Iterable[str] = OWN) -> bool:
    """Return whether an engine's name for an image is one of Forge's own."""
    full = normal(listed.removeprefix("localhost/"))
    return full.startswith(tuple(_full(f"{own}:") for own in repositories))


def _full(name: str) -> str:
    if not _is_short(name):
        return name
    return f"docker.io/{name}" if "/" in name else f"docker.io/library/{name}"


def _is_short(name: str) -> bool:
    """Return whether a name leaves its registry out."""
    host, slash, _ = name.partition("/")
    return not slash or not ("." in host or ":" in host or host == "localhost")


class ImageRefused(ImageMissing):
    """The operator of this worker does not allow the image."""


def check_name(name: str, policy: DockerPolicy) -> None:
    """Check that a job may use an image; the worker's default image is always allowed.

    Raises:
        ImageRefused: it may not.
        ImageMissing: it is not an image's name.
    """
    if name == policy.default_image:
        return
    # Otherwise a job could use the image of another owner's project or tar.
    if ID.fullmatch(name):
        raise ImageRefused(
            "an image must be given by name, not by its id", hint="write name:tag or name@sha256:…"
        )
    reference = parse(name)
    if reference.repository.rpartition("/")[2] in (*OWN, PAUSE):
        raise ImageRefused(
            f"the name {name} is reserved for the worker",
            hint="submit the Dockerfile or the saved tar that it was made from",
        )
    _check_globs(name, {name, *reference.spellings}, policy)


def check_tar(digest: str, policy: DockerPolicy) -> None:
    """Check that a saved image is allowed; the operator's globs see `tar:` and its SHA-256.

    Raises:
        ImageRefused: it is not allowed.
    """
    _check_globs(f"the saved image {digest[:12]}", {f"tar:{digest}"}, policy)


def check_build(policy: DockerPolicy) -> None:
    """Check that builds are allowed; `ImageRefused` if this worker builds no images."""
    if not policy.allow_builds:
        raise ImageRefused(
            "this worker builds no images",
            hint="its operator may set FORGE_ALLOW_BUILDS=true; or submit with --image",
        )


def _check_globs(what: str, spellings: Iterable[str], policy: DockerPolicy) -> None:
    globs = policy.allowed_images
    if not any(fnmatchcase(name, glob) for name in spellings for glob in globs):
        allowed = ", ".join(globs) or "none"
        raise ImageRefused(
            f"this worker's operator does not allow {what}; allowed are {allowed}",
            hint="use one of these, or select another worker by a label",
        )
