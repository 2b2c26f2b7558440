"""Read a project's requirements.txt or pyproject.toml, and all files that it includes."""

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from forge_schema.model.bundles import LOCK, PYTHON, list_text
from forge_schema.model.quantities import size_text

from forge_worker.prepare.provisions import ProvisionFailed

LARGEST_BYTES = 1 << 20  # all files together; lists with hashes are long
LARGEST_TOML_BYTES = 1 << 17
MOST_WORDS = 20_000
PATH_BYTES = 4096  # longer words cannot be paths
NESTED = re.compile(r"^(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)")
DIGEST = "--hash="
COMMENT = re.compile(r"(^|\s)#.*$", re.MULTILINE)
CONTINUED = re.compile(r"\\\r?\n")
# The parts of a word around the path of a local file: an option, a scheme, extras, a fragment.
AROUND = re.compile(r"^(?:-\w|--[\w-]+=)|^file:(?://)?|\[[^\]]*\]$|#.*$")
# An editable install would refer to a folder that no longer exists when the job runs.
EDITABLE = re.compile(r"^([ \t]*)(?:-e|--editable)[ \t=]+", re.MULTILINE)


@dataclass(frozen=True)
class Requirements:
    """The content of a requirements file; `digest` covers it and the local files it names."""

    path: str
    files: dict[str, str] = field(repr=False)
    digest: str

    @property
    def locked(self) -> bool:
        """Whether it lists all packages with their versions."""
        return self.path.startswith(LOCK)

    @property
    def python(self) -> str:
        """The versions of Python that it asks for, and what they are for people; "" for any."""
        first = self.files[self.path].partition("\n")[0]
        return first.removeprefix(PYTHON) if first.startswith(PYTHON) else ""

    @property
    def names_no_package(self) -> bool:
        """Whether it asks for a Python only."""
        lines = self.files[self.path].splitlines()
        return self.locked and not any(line.strip() and line[0] != "#" for line in lines)


def read(project: Path, path: str, go_on: Callable[[], None]) -> Requirements:
    """Read the requirements of an unpacked project; `go_on` is called meanwhile and may raise.

    Raises:
        ProvisionFailed: the file is missing, malformed or too large.
    """
    root = project.resolve()
    toml = path.endswith(".toml")
    files = {path: _dependencies(root, path)} if toml else _texts(root, path, go_on)
    files_read = _locals(root, _words(files), go_on)
    listed = [(str(file.relative_to(root)), _sha256(file, go_on)) for file in sorted(files_read)]
    digest = hashlib.sha256(json.dumps([path, files, listed]).encode()).hexdigest()
    return Requirements(path, files, digest)


def _texts(root: Path, path: str, go_on: Callable[[], None]) -> dict[str, str]:
    """Return a requirements file and those it includes, by their paths in the project."""
    texts: dict[str, str] = {}
    pending, left = [path], LARGEST_BYTES
    while pending:
        go_on()
        if (name := pending.pop()) in texts:
            continue
        text = _text(root, name, left)
        # Empty files count too, which limits the number of files.
        left -= len(text) + 1
        texts[name] = EDITABLE.sub(r"\1", text)
        pending += _nested(root, name, texts[name], go_on)
    return texts


def _nested(root: Path, name: str, text: str, go_on: Callable[[], None]) -> Iterator[str]:
    words = {match[1] for line in _lines(text) if (match := NESTED.match(line))}
    _check_number(words)
    for word in sorted(words):
        go_on()
        yield from (str(file.relative_to(root)) for file in _within(root, Path(name).parent, word))


def _dependencies(root: Path, path: str) -> str:
    try:
        project = tomllib.loads(_text(root, path, LARGEST_TOML_BYTES)).get("project", {})
        lines = project.get("dependencies", [])
        dynamic = "dependencies" in project.get("dynamic", [])
    except (tomllib.TOMLDecodeError, AttributeError, TypeError, RecursionError) as error:
        raise ProvisionFailed(f"{path} is not a valid pyproject.toml: {error}") from error
    if dynamic or not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise ProvisionFailed(
            f"{path} does not list its dependencies statically",
            hint="list them in [project], or in a requirements.txt",
        )
    return "".join(f"{line}\n" for line in lines)


def _text(root: Path, path: str, most: int) -> str:
    try:
        with (root / path).open("rb") as file:
            # UTF-32 has four bytes for a letter, and one more for its mark.
            data = file.read(4 * max(0, most) + 5)
        text = list_text(data) if len(data) <= 4 * max(0, most) + 4 else " " * (most + 1)
    except OSError as error:
        raise ProvisionFailed(
            f"the project's {path} cannot be read: {error.strerror}",
            hint="check whether .gitignore or .forgeignore excludes it from the bundle",
        ) from error
    except UnicodeError as error:
        raise ProvisionFailed(
            f"the project's {path} cannot be read: it is not UTF-8 text, nor of the encoding"
            " that it begins with",
            hint="save it as UTF-8",
        ) from error
    if len(text) > most:
        raise ProvisionFailed(
            f"the project's {path}, with all files it includes, is too large: requirements may have"
            f" {size_text(LARGEST_BYTES)}, a pyproject.toml {size_text(LARGEST_TOML_BYTES)}",
            hint="name fewer packages, or submit with an image that has them",
        )
    return text


def _lines(text: str) -> list[str]:
    bare = COMMENT.sub("", CONTINUED.sub(" ", text))
    return [line.strip() for line in bare.splitlines() if line.strip()]


def _words(files: dict[str, str]) -> set[tuple[Path, str]]:
    """Return each distinct word that may be a path, with the folder of its file."""
    words = {
        (Path(name).parent, AROUND.sub("", AROUND.sub("", word)))
        for name, text in files.items()
        for line in _lines(text)
        for word in line.split()
        if len(word) <= PATH_BYTES and not word.startswith(DIGEST)
    }
    _check_number(words)
    return words


def _check_number(words: set[str] | set[tuple[Path, str]]) -> None:
    if len(words) > MOST_WORDS:
        raise ProvisionFailed(
            f"the project's requirements have more than {MOST_WORDS} different words",
            hint="name fewer packages, or submit with an image that has them",
        )


def _locals(root: Path, words: Iterable[tuple[Path, str]], go_on: Callable[[], None]) -> set[Path]:
    """Return the project's files that a requirement names, directly or in a folder.

    A word that only looks like a path costs at most one unnecessary installation.
    """
    named: set[Path] = set()
    for folder, word in words:
        go_on()
        named.update(_within(root, folder, word))
    files = {path for path in named if path.is_file()}
    folders = named - files
    # No folder is walked twice, even if its parents are named too.
    for folder in (path for path in folders if folders.isdisjoint(path.parents)):
        for at, _, names in os.walk(folder):
            go_on()
            files.update(path for name in names if (path := Path(at, name)).is_file())
    return files


def _within(root: Path, folder: Path, word: str) -> list[Path]:
    """Return the paths in the project that a word names, from `folder` and from the root."""
    paths = set()
    for start in {root / folder, root}:
        with suppress(OSError, ValueError):  # ValueError: the word is not a valid path
            path = (start / word).resolve()
            if word and path.exists() and path.is_relative_to(root):
                paths.add(path)
    return sorted(paths)


def _sha256(file: Path, go_on: Callable[[], None]) -> str:
    go_on()
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
