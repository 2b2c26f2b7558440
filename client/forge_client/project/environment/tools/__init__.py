"""Readers of the lists and locks that other tools write, a module for each format, and their rows.

Few projects have one of them, so each is loaded when it is needed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from forge_client.project.environment.names import canonical, joined
from forge_client.project.environment.tables import PUBLIC

# The modules for locks whose packages are complete, by the names of their files.
LOCKS = {"poetry.lock": "poetry", "pdm.lock": "pdm", "Pipfile.lock": "pipenv"}
PYLOCK, CONDA, CONDA_LOCKS = "pylock", "conda", "conda_locks"
# `pylock.gpu.toml` is the lock of a part; so is `gpu.conda-lock.yml`, if conda-lock is told to.
PYLOCKS = re.compile(r"pylock(\.[^.]+)?\.toml")
LOCKS_OF_CONDA = re.compile(r"pixi\.lock|(.+\.)?conda-lock\.ya?ml")


def module(name: str) -> Any:  # noqa: ANN401 - a module
    """Return a module of this room by its name."""
    return import_module(f"{__name__}.{name}")


@dataclass(frozen=True)
class Row:
    """A package: where it is, such as `numpy==2.3.0`, when it is needed, and its digests."""

    name: str
    version: str
    located: str
    marker: str = ""
    digests: tuple[str, ...] = ()


@dataclass(frozen=True)
class LockRows:
    """The packages of a lock and the indexes that have them, and the range of its Pythons."""

    packages: Sequence[Row]
    indexes: Sequence[str] = ()
    python: str = ""

    @property
    def pins(self) -> dict[str, set[str]]:
        """The versions of each package; "" for one that comes from elsewhere."""
        versions: dict[str, set[str]] = {}
        for package in self.packages:
            pinned = package.located == f"{package.name}=={package.version}"
            versions.setdefault(canonical(package.name), set()).add(
                package.version if pinned else ""
            )
        return versions

    @property
    def text(self) -> str:
        """A requirements file; a package that is listed several times has one line."""
        grouped: dict[str, list[Row]] = {}
        for package in self.packages:
            grouped.setdefault(package.located, []).append(package)
        options = sorted({f"--extra-index-url {other}" for other in _others(self.indexes)})
        return "".join(f"{line}\n" for line in (*options, *map(_line, grouped.values())))


def _others(indexes: Iterable[str]) -> Iterator[str]:
    return (index for index in indexes if index and index.rstrip("/") != PUBLIC)


def _line(same: Sequence[Row]) -> str:
    marker = joined([row.marker for row in same])
    digests = dict.fromkeys(digest for row in same for digest in row.digests)
    hashes = "".join(f" --hash={digest}" for digest in digests)
    return f"{same[0].located}{f' ; {marker}' if marker else ''}{hashes}"


def digests_of(files: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
    """Return the digests of a package's files, each a table with a `hash`."""
    return tuple(str(file["hash"]) for file in files if file.get("hash"))
