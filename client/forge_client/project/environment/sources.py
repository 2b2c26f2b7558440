"""The kinds of list from which a project's packages can be taken."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Protocol

from forge_client.errors import ClientError
from forge_client.project.environment import conda, poetry
from forge_client.project.environment.active import Active
from forge_client.project.environment.locks import Lock, lock, of_uv, resolved
from forge_client.project.environment.uv import ABSENT, NotLocked

UV, POETRY, PROJECT, LISTED = "uv.lock", "poetry.lock", "pyproject.toml", "requirements.txt"
YAML = (".yml", ".yaml")


class Source(Protocol):
    """Where packages are listed; `exact` if with all versions, which do not depend on an image."""

    exact: ClassVar[bool]

    @property
    def called(self) -> str:
        """Its name, for people."""

    @property
    def python(self) -> str | None:
        """The version of Python that it asks for itself."""

    def lock(self, python: str | None, *, whole: bool) -> Lock:
        """Return its packages with their versions; `whole` with those for development.

        Raises:
            NotLocked: that is impossible here.
            ClientError: it is malformed, or names packages that are not Python's.
        """

    def plain(self) -> tuple[str, str]:
        """Return what a worker can resolve: a list in the project, "" for none, and its text."""


@dataclass(frozen=True)
class UvLock:
    """A uv.lock, beside its pyproject.toml."""

    called: str
    path: Path
    exact: ClassVar = True
    python: ClassVar = None

    def lock(self, python: str | None, *, whole: bool) -> Lock:
        """Return the packages as uv exports them."""
        return of_uv(self.path.parent, python, whole=whole)

    def plain(self) -> tuple[str, str]:
        """Return the pyproject.toml."""
        name = str(PurePosixPath(self.called).with_name(PROJECT))
        return name, lines(dependencies(self.path.with_name(PROJECT)))


@dataclass(frozen=True)
class PoetryLock:
    """A poetry.lock."""

    called: str
    path: Path
    exact: ClassVar = True
    python: ClassVar = None

    def lock(self, python: str | None, *, whole: bool) -> Lock:
        """Return the packages of the main group, or of all."""
        return lock(poetry.read(self.path, whole=whole), python)

    def plain(self) -> tuple[str, str]:
        """Return the main group."""
        return "", self.lock(None, whole=False).text


@dataclass(frozen=True)
class CondaFile:
    """An environment.yml of conda."""

    called: str
    path: Path
    exact: ClassVar = False

    @property
    def python(self) -> str | None:
        """The version of its package `python`."""
        return conda.read(self.path).python

    def lock(self, python: str | None, *, whole: bool) -> Lock:  # noqa: ARG002 - it has no groups
        """Resolve its packages in the index of Python packages."""
        try:
            return resolved(self.path.parent, None, self.plain()[1], python)
        except NotLocked as error:
            if absent := ABSENT.findall(str(error)):
                raise conda.not_python(self.called, absent) from error
            raise

    def plain(self) -> tuple[str, str]:
        """Return its packages as requirements."""
        return "", lines(conda.read(self.path).requirements)


@dataclass(frozen=True)
class ListFile:
    """A requirements.txt, or a pyproject.toml with dependencies."""

    called: str
    path: Path
    exact: ClassVar = False
    python: ClassVar = None

    def lock(self, python: str | None, *, whole: bool) -> Lock:  # noqa: ARG002 - as above
        """Resolve it."""
        return resolved(self.path.parent, self.path.name, "", python)

    def plain(self) -> tuple[str, str]:
        """Return it."""
        toml = self.called.endswith(".toml")
        return self.called, lines(dependencies(self.path)) if toml else f"-r {self.called}\n"


@dataclass(frozen=True)
class ActiveSource:
    """The active environment of the submitter."""

    found: Active
    exact: ClassVar = True

    @property
    def called(self) -> str:
        """Its name."""
        return f"the active environment {self.found.name}"

    @property
    def python(self) -> str:
        """Its own."""
        return self.found.python

    def lock(self, python: str | None, *, whole: bool) -> Lock:  # noqa: ARG002 - as above
        """Return its packages."""
        return lock(self.found.text(), python)

    def plain(self) -> tuple[str, str]:
        """Return its packages."""
        return "", self.found.text()


def source_of(name: str, path: Path) -> Source:
    """Return a list of a project, by the name of its file."""
    kinds: dict[str, Callable[[str, Path], Source]] = {UV: UvLock, POETRY: PoetryLock}
    if name.endswith(YAML):
        return CondaFile(name, path)
    return kinds.get(PurePosixPath(name).name, ListFile)(name, path)


def dependencies(path: Path) -> list[str]:
    """Return the dependencies in a pyproject.toml; none if it does not list them itself.

    Raises:
        ClientError: it is malformed.
    """
    try:
        project: Any = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise wrong(f"{path}: {error}", "correct it, or submit with --no-install") from error
    found = project.get("dependencies") if isinstance(project, dict) else None
    return found if isinstance(found, list) else []


def lines(words: Sequence[str]) -> str:
    """Return words as lines."""
    return "".join(f"{word}\n" for word in words)


def wrong(message: str, hint: str) -> ClientError:
    """Return the error for a list that cannot be used."""
    return ClientError(message, hint=hint, code="requirements_invalid")
