"""The kinds of list from which a project's packages can be taken."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar, Protocol

from forge_client.project.environment import conda, poetry
from forge_client.project.environment.active import Active
from forge_client.project.environment.locks import Lock, lock, of_uv, resolved
from forge_client.project.environment.pythons import SETUP, Python, exactly, setup_option
from forge_client.project.environment.tables import PROJECT, dependencies
from forge_client.project.environment.uv import ABSENT, NotLocked

UV, POETRY, LISTED, INPUT = "uv.lock", "poetry.lock", "requirements.txt", "requirements.in"
YAML = (".yml", ".yaml")
INSTALLED = "install_requires"


class Source(Protocol):
    """Where packages are listed; `exact` if with all versions, which do not depend on an image."""

    exact: ClassVar[bool]

    @property
    def called(self) -> str:
        """Its name, for people."""

    @property
    def python(self) -> Python | None:
        """The version of Python that it asks for itself."""

    def lock(self, python: Python | None, *, whole: bool) -> Lock:
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

    def lock(self, python: Python | None, *, whole: bool) -> Lock:
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

    def lock(self, python: Python | None, *, whole: bool) -> Lock:
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
    def python(self) -> Python | None:
        """The version of its package `python`."""
        asked = conda.read(self.path).python
        return exactly(asked, self.called) if asked else None

    def lock(self, python: Python | None, *, whole: bool) -> Lock:  # noqa: ARG002 - it has no groups
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

    def lock(self, python: Python | None, *, whole: bool) -> Lock:  # noqa: ARG002 - as above
        """Resolve it."""
        return resolved(self.path.parent, self.path.name, "", python)

    def plain(self) -> tuple[str, str]:
        """Return it."""
        toml = self.called.endswith(".toml")
        return self.called, lines(dependencies(self.path)) if toml else f"-r {self.called}\n"


@dataclass(frozen=True)
class SetupFile:
    """A setup.cfg that lists the project's packages itself."""

    called: str
    path: Path
    exact: ClassVar = False
    python: ClassVar = None

    def lock(self, python: Python | None, *, whole: bool) -> Lock:  # noqa: ARG002 - as above
        """Resolve them."""
        return resolved(self.path.parent, None, self.plain()[1], python)

    def plain(self) -> tuple[str, str]:
        """Return them."""
        return "", lines(setup_option(self.path, INSTALLED).split("\n"))


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
    def python(self) -> Python:
        """Its own."""
        return exactly(self.found.python)

    def lock(self, python: Python | None, *, whole: bool) -> Lock:  # noqa: ARG002 - as above
        """Return its packages."""
        return lock(self.found.text(), python)

    def plain(self) -> tuple[str, str]:
        """Return its packages."""
        return "", self.found.text()


def source_of(name: str, path: Path) -> Source:
    """Return a list of a project, by the name of its file."""
    kinds: dict[str, Callable[[str, Path], Source]] = {
        UV: UvLock,
        POETRY: PoetryLock,
        SETUP: SetupFile,
    }
    if name.endswith(YAML):
        return CondaFile(name, path)
    return kinds.get(PurePosixPath(name).name, ListFile)(name, path)


def lines(words: Sequence[str]) -> str:
    """Return words as lines."""
    return "".join(f"{word}\n" for word in words)
