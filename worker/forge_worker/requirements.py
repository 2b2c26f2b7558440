"""What a project's requirements.txt or pyproject.toml asks for, and all that it refers to."""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from forge_worker.provisions import ProvisionFailed

LARGEST_BYTES = 1 << 20
NESTED = re.compile(r"^(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)")
COMMENT = re.compile(r"(^|\s)#.*$", re.MULTILINE)
CONTINUED = re.compile(r"\\\r?\n")
# What is around the path of a local file: an option, a scheme, extras, a fragment.
AROUND = re.compile(r"^(?:-\w|--[\w-]+=)|^file:(?://)?|\[[^\]]*\]$|#.*$")
# An editable package would be looked for in a folder that is gone when the job runs.
EDITABLE = re.compile(r"^(\s*)(?:-e|--editable)[\s=]+", re.MULTILINE)


@dataclass(frozen=True)
class Requirements:
    """The lines of a file by its path in the project; `digest` is of them and of local files."""

    path: str
    files: dict[str, str] = field(repr=False)
    digest: str


def read(project: Path, path: str) -> Requirements:
    """Read the requirements of an unpacked project.

    Raises:
        ProvisionFailed: the file is not there, or is not what it should be.
    """
    root = project.resolve()
    files = {path: _dependencies(root, path)} if path.endswith(".toml") else _texts(root, path)
    locals_ = {found for name, text in files.items() for found in _locals(root, name, text)}
    listed = sorted((str(file.relative_to(root)), _sha256(file)) for file in locals_)
    digest = hashlib.sha256(json.dumps([path, files, listed]).encode()).hexdigest()
    return Requirements(path, files, digest)


def _texts(root: Path, path: str) -> dict[str, str]:
    """Return a requirements file and those that it includes, by their paths in the project."""
    texts: dict[str, str] = {}
    pending = [path]
    while pending:
        if (name := pending.pop()) in texts:
            continue
        texts[name] = EDITABLE.sub(r"\1", _text(root, name))
        nested = (NESTED.match(line) for line in _lines(texts[name]))
        found = (_within(root, name, match[1]) for match in nested if match)
        pending += [str(file.relative_to(root)) for files in found for file in files]
    return texts


def _dependencies(root: Path, path: str) -> str:
    try:
        project = tomllib.loads(_text(root, path)).get("project", {})
        lines = project.get("dependencies", [])
        dynamic = "dependencies" in project.get("dynamic", [])
    except (tomllib.TOMLDecodeError, AttributeError, TypeError) as error:
        raise ProvisionFailed(f"{path} is no pyproject.toml: {error}") from error
    if dynamic or not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise ProvisionFailed(
            f"{path} does not list its dependencies itself",
            hint="write them below [project], or into a requirements.txt",
        )
    return "".join(f"{line}\n" for line in lines)


def _text(root: Path, path: str) -> str:
    try:
        with (root / path).open(encoding="utf-8") as file:
            text = file.read(LARGEST_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ProvisionFailed(
            f"the project's {path} cannot be read: {why}",
            hint="is it left out of the bundle by .gitignore or .forgeignore?",
        ) from error
    if len(text) > LARGEST_BYTES:
        raise ProvisionFailed(f"the project's {path} is larger than {LARGEST_BYTES >> 20} MiB")
    return text


def _lines(text: str) -> list[str]:
    bare = COMMENT.sub("", CONTINUED.sub(" ", text))
    return [line.strip() for line in bare.splitlines() if line.strip()]


def _locals(root: Path, name: str, text: str) -> Iterator[Path]:
    """Find the files of the project that a requirement names, or that a folder which it names has.

    A word that only looks like a path costs at worst an installation that was not needed.
    """
    for line in _lines(text):
        for word in line.split():
            for found in _within(root, name, AROUND.sub("", AROUND.sub("", word))):
                yield from [found] if found.is_file() else filter(Path.is_file, found.rglob("*"))


def _within(root: Path, name: str, word: str) -> list[Path]:
    """Return what a word names below the project: seen from its file, or from the project."""
    found = set()
    for start in (root / name).parent, root:
        with suppress(OSError, ValueError):  # ValueError: what it says can be no path
            path = (start / word).resolve()
            if word and path.exists() and path.is_relative_to(root):
                found.add(path)
    return sorted(found)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
