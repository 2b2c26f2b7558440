"""Locks: lists of packages that are complete and have versions, kept so that they stay the same.

What a list resolves to changes with every release of a package. So a lock that was resolved once is
used again as long as the list is the same.
"""

import hashlib
import json
import re
import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from forge_schema.model.bundles import PIP_HASH, PYTHON, list_text
from forge_schema.model.quantities import duration_text

from forge_client.default_paths import locks
from forge_client.project.environment.fresh import check_pins, check_platform, stale
from forge_client.project.environment.local import ON_THIS_MACHINE, place_in, refuse_elsewhere
from forge_client.project.environment.names import NOTHING, Picked, canonical, name_of
from forge_client.project.environment.pythons import OLDEST, Python
from forge_client.project.environment.tables import PROJECT, PUBLIC, needed, table, wrong
from forge_client.project.environment.tools import run, workspace
from forge_client.project.environment.uv import MISSING, STALE, NotLocked, compiled, exported

# Increment this if locks are made differently.
RECIPE = 2
OLD_S = 3600
ANY_PYTHON = "# any python"
# uv locks a script in a file beside it.
LOCK_OF_SCRIPT = ".py.lock"
NESTED = re.compile(r"^[ \t]*(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)", re.MULTILINE)
# Options that say where packages are. They stay as written: a variable in them may be a secret.
OPTION = re.compile(
    r"^[ \t]*(?:-i|-f|--(?:index-url|extra-index-url|find-links|no-index|trusted-host|pre"
    r"|prefer-binary|no-binary|only-binary))\b.*$",
    re.MULTILINE,
)
# Files of the project: the worker has them, and a lock cannot give them a version.
LOCAL = re.compile(
    r"^\s*(?:-e\b|--editable\b|\.{1,2}(?:/|\s|$)|(?:[\w.-]+/)*[\w.-]+\.(?:whl|zip|tar\.gz)\b)"
    r"|^\s*(?:-f|--find-links)[\s=]+(?!\w+://|/)|@\s*(?:file:)?\.{1,2}/|^\s*file:(?!//)",
    re.MULTILINE,
)
# An editable package is installed as it is, so it is a package like any other.
EDITABLE = re.compile(r"^(?:-e|--editable)[\s=]*")
SHA256 = "=sha256:"
CONTINUED = re.compile(r"\\\n\s*")
# No worker runs there. A marker with `or` may hold on Linux all the same.
ELSEWHERE = re.compile(
    r";(?!.*\bor\b).*(sys_platform|platform_system|os_name) == .(win32|darwin|Windows|Darwin|nt)\b"
)


@dataclass(frozen=True)
class Lock:
    """The text of a lock; `note` names the file of one that was made earlier.

    Paths of files in it start at `base`, or at the folder of its source if that is None.
    """

    text: str
    note: str = ""
    base: Path | None = None

    @property
    def packages(self) -> int:
        """The number of its packages on Linux; one with versions for two Pythons counts twice."""
        lines = filter(_is_package, self.text.splitlines())
        return sum(not ELSEWHERE.search(line) for line in lines)

    @property
    def digest(self) -> str:
        """Its SHA-256."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class ListToResolve:
    """A list to resolve: a requirements file, a pyproject.toml or a script, and more requirements.

    `root` is the project's folder, and `called` the list's name, for people.
    """

    root: Path
    folder: Path
    file: str | None
    called: str
    more: str = ""
    picked: Picked = NOTHING
    is_script: bool = False

    @property
    def is_requirements(self) -> bool:
        """Whether it is a list as pip reads it."""
        return not self.is_script and not (self.file or "").endswith(".toml")

    @cached_property
    def block(self) -> run.ScriptBlock | None:
        """That of a script."""
        return run.block(self.folder / str(self.file)) if self.is_script else None

    @cached_property
    def settings(self) -> list[Mapping[str, Any]]:
        """The settings of uv for it; none for a list as pip reads it, which says all itself."""
        if self.is_requirements:
            return []
        settings = [workspace.settings_of(self.folder)]
        return [self.block.uv, *settings] if self.block else settings

    def texts(self) -> list[str]:
        """Return the texts of the file, if there is one, and of those that it includes.

        Raises:
            NotLocked: it includes one that is at a URL.
            ClientError: one is not there or is no text, or names files outside the project.
        """
        refuse_elsewhere(self.more, self.called, self.root, self.folder)
        texts: dict[Path, str] = {}
        if self.file:
            texts = list_texts(self.folder, self.file, includes=self.is_requirements)
        if self.is_requirements:
            for path, text in texts.items():
                refuse_elsewhere(text, path.name, self.root, path.parent)
        return list(texts.values())

    def options(self, texts: Iterable[str]) -> list[str]:
        """Return the options that say where its packages are."""
        if self.is_requirements:
            return list(_options(texts))
        # What builds a package of the project may be in no index of its own.
        own = [
            word for word in workspace.index_options(*self.settings) if word != workspace.NO_INDEX
        ]
        return [*own, *_options([self.more])]


def stored(text: str) -> Path:
    """Return a file with a text, which stays."""
    path = locks() / f"{hashlib.sha256(text.encode()).hexdigest()}.txt"
    if not path.is_file():
        _write(path, text)
    return path


def lock(lines: str, python: Python | None) -> Lock:
    """Return the lock of packages that are complete and have versions."""
    words = CONTINUED.sub(" ", lines).splitlines()
    kept = [EDITABLE.sub("", line.strip()) for line in words]
    kept = [line for line in kept if line and not line.startswith("#")]
    # pip wants the digests of all packages or of none.
    if not all("--hash=" in line for line in kept if _is_package(line)):
        kept = [PIP_HASH.sub("", line) for line in kept]
    head = f"{PYTHON}{python.head}" if python else ANY_PYTHON
    return Lock("".join(f"{line}\n" for line in (head, *kept)))


def resolved(listed: ListToResolve, python: Python | None) -> Lock:
    """Resolve a list of packages.

    Raises:
        NotLocked: it names files of the project, or cannot be resolved here.
        ClientError: it includes a file that is not there, or names files outside the project.
    """
    texts = [*listed.texts(), listed.more]
    if any(LOCAL.search(text) for text in texts):
        raise NotLocked("it names files of the project")
    if any(ON_THIS_MACHINE.search(text) for text in texts):
        raise NotLocked("it names an index on this machine")
    asked = [listed.picked.extras, listed.picked.groups] if listed.picked else []
    head = python.head if python else None
    content = [RECIPE, texts, head, listed.settings, *asked]
    key = hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()
    path = locks() / f"{key}.txt"
    with suppress(OSError):
        known = path.read_text(encoding="utf-8")
        age_s = time.time() - path.stat().st_mtime
        old = f", as {duration_text(int(age_s))} ago; remove {path} to take newer ones"
        return Lock(known, old if age_s > OLD_S else "")
    lines = _with_digests(listed, _compiled(listed, python), texts)
    made = lock("\n".join((*listed.options(texts), *lines)), python)
    # What a package in a folder requires may change while the list stays the same.
    if not any(place_in(line) for line in made.text.splitlines()):
        with suppress(OSError):
            _write(path, made.text)
    return made


def _compiled(listed: ListToResolve, python: Python | None) -> str:
    """Resolve for all Pythons from the oldest that a worker has, or else from the one here."""
    if listed.file and listed.block and listed.block.needs_export(listed.file):
        return exported(listed.folder, NOTHING, listed.file, check="")
    resolve = partial(compiled, listed.folder, listed.file, listed.more, picked=listed.picked)
    if python:
        return resolve(python=python.lowest)
    oldest, here = (f"3.{minor}" for minor in (OLDEST, sys.version_info.minor))
    try:
        return resolve(python=oldest)
    except NotLocked:
        if here == oldest:
            raise
        return resolve(python=here)


def _with_digests(listed: ListToResolve, made: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a lock with the digests that its list has, as pip would demand them.

    uv leaves them out of account, and writes those that the index has now.

    Raises:
        ClientError: the index has no file with such a digest.
    """
    kept: dict[str, list[str]] = {}
    for text in texts if listed.is_requirements else ():
        for line in CONTINUED.sub(" ", text).splitlines():
            digests = map(str.strip, PIP_HASH.findall(line.partition(" #")[0]))
            kept.setdefault(name_of(line), []).extend(digests)
    for line in CONTINUED.sub(" ", made).splitlines():
        own = kept.get(name_of(line)) if _is_package(line) else None
        there = set(map(str.strip, PIP_HASH.findall(line)))
        if own and there and all(SHA256 in digest for digest in own) and there.isdisjoint(own):
            raise wrong(
                f"{listed.called} names digests of {line.split()[0]} that no file in the index has",
                "somebody replaced the files, or the list is wrong: `uv pip compile"
                " --generate-hashes` writes one with the digests of today",
            )
        yield " ".join((PIP_HASH.sub("", line), *own)) if own else line


def of_uv(path: Path, folder: Path, python: Python | None, picked: Picked) -> Lock:
    """Return what a uv.lock, or the lock of a script, has for a project.

    Args:
        path: the lock's.
        folder: the project's, which may be a member of the workspace of the lock.
        python: the versions of Python that the project asks for.
        picked: its extras and groups.

    Raises:
        NotLocked: uv is missing.
        ClientError: the lock is out of date, uv cannot read it, or it has no such extra or group.
    """
    of_script = path.stem if path.name != workspace.LOCK else ""
    advice = f"`uv lock --script {of_script}`" if of_script else "`uv lock`"
    try:
        lines = exported(folder, picked, of_script)
    except NotLocked as error:
        if str(error) == MISSING:
            raise
        if STALE in str(error):
            raise stale(path, of_script or PROJECT, advice) from error
        lines = _as_it_is(path, folder, picked, of_script, error)
        script = run.block(folder / of_script) if of_script else None
        direct = script.requirements if script else needed(folder / PROJECT, Picked(picked.extras))
        check_pins(path, of_script or PROJECT, advice, direct, _pins(table(path)))
    document = table(path)
    check_platform(path, document.get("supported-markers", []))
    packages = document.get("package", [])
    registries = {
        str(entry.get("source", {}).get("registry", PUBLIC)).rstrip("/") for entry in packages
    }
    places = sorted(registries - {PUBLIC})
    options = [f"--{'extra-index-url' if '://' in url else 'find-links'} {url}" for url in places]
    return replace(lock("\n".join((*options, lines)), python), base=path.parent)


def _as_it_is(path: Path, folder: Path, picked: Picked, of_script: str, error: NotLocked) -> str:
    """Return what a lock has where uv has no Python, or no index, to compare it with its list."""
    try:
        return exported(folder, picked, of_script, check="--frozen")
    except NotLocked:
        raise wrong(
            f"{path} cannot be taken: {error}", "correct that, or have uv write the lock again"
        ) from error


def _pins(document: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the versions of the packages of a uv.lock; "" for those that a list cannot choose."""
    pins: dict[str, set[str]] = {}
    for entry in document.get("package", []):
        version = entry.get("version", "") if "registry" in entry.get("source", {}) else ""
        pins.setdefault(canonical(entry["name"]), set()).add(version)
    for entry in document.get("manifest", {}).get("overrides", []):
        pins.setdefault(canonical(entry["name"]), set()).add("")
    return pins


def list_texts(folder: Path, file: str, *, includes: bool = True) -> dict[Path, str]:
    """Return the texts of a list and of those that it includes, if it does, by their paths.

    Raises:
        NotLocked: it includes one that is at a URL.
        ClientError: one is not there, or is not text.
    """
    texts: dict[Path, str] = {}
    rest = [(folder / file).resolve()]
    while rest:
        path = rest.pop()
        if path in texts:
            continue
        texts[path] = _text(path, texts)
        if includes:
            text = CONTINUED.sub(" ", texts[path])
            included = [match[1] for match in NESTED.finditer(text)]
            if at_a_url := [name for name in included if "://" in name]:
                raise NotLocked(f"it includes {at_a_url[0]}")
            rest += [(path.parent / name).resolve() for name in included]
    return texts


def _text(path: Path, above: Iterable[Path]) -> str:
    try:
        return list_text(path.read_bytes())
    except OSError as error:
        by = f", which {next(iter(above)).name} includes" if above else ""
        raise wrong(
            f"{path}{by}, cannot be read: {error.strerror}",
            "write it, or remove the line that names it",
        ) from error
    except UnicodeError as error:
        raise wrong(
            f"{path}: it is not UTF-8 text, nor of the encoding that it begins with",
            "save it as UTF-8",
        ) from error


def _options(texts: Iterable[str]) -> Iterator[str]:
    return (match[0] for text in texts for match in OPTION.finditer(text))


def _is_package(line: str) -> bool:
    return bool(line) and line[0] not in "-#"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{secrets.token_hex(8)}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
