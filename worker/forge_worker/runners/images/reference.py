"""Images by name: `debian`, `registry.example/me/train:3`, `debian@sha256:…`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from forge_worker.runners.runner import ImageMissing

# What Forge itself keeps in the engine, under names that no job may use.
OWN = ("forge-build", "forge-tar")
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
    """A name in its parts; `repository` is as the engine shows it, without what goes unsaid."""

    repository: str
    tag: str | None
    digest: str | None

    @property
    def local(self) -> str:
        """The name by which the engine lists the image."""
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
    """Take a name apart.

    Raises:
        ImageMissing: it is none.
    """
    found = None if ID.fullmatch(name) else _NAME.fullmatch(name)
    if found is None:
        raise ImageMissing(
            f"{name!r} is no name of an image",
            hint="write it as for docker pull: name:tag, or name@sha256:… to pin it",
        )
    repository = found["repository"]
    for default in _DEFAULTS:
        repository = repository.removeprefix(default)
    return Reference(repository, found["tag"], found["digest"])


def _full(name: str) -> str:
    host, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    return name if "." in host or ":" in host or host == "localhost" else f"docker.io/{name}"
