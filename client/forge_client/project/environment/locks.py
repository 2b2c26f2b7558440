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
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forge_schema.model.bundles import PIP_HASH, PYTHON, list_text
from forge_schema.model.quantities import duration_text

from forge_client.default_paths import locks
from forge_client.errors import ClientError
from forge_client.project.environment.poetry import PUBLIC
from forge_client.project.environment.pythons import OLDEST, Python
from forge_client.project.environment.tables import wrong
from forge_client.project.environment.uv import STALE, NotLocked, compiled, exported

# Increment this if locks are made differently.
RECIPE = 1
OLD_S = 3600
ANY_PYTHON = "# any python"
NESTED = re.compile(r"^(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)", re.MULTILINE)
# Options that say where packages are. They stay as written: a variable in them may be a secret.
OPTION = re.compile(
    r"^(?:-i|-f|--(?:index-url|extra-index-url|find-links|no-index|trusted-host|pre|prefer-binary"
    r"|no-binary|only-binary))\b.*$",
    re.MULTILINE,
)
# Files of the project: the worker has them, and a lock cannot give them a version.
LOCAL = re.compile(
    r"^\s*(?:-e\b|--editable\b|\.{1,2}(?:/|\s|$)|(?:[\w.-]+/)*[\w.-]+\.(?:whl|zip|tar\.gz)\b)"
    r"|^\s*(?:-f|--find-links)[\s=]+(?!\w+://|/)|@\s*(?:file:)?\.{1,2}/|^\s*file:(?!//)",
    re.MULTILINE,
)
CONTINUED = re.compile(r"\\\n\s*")
# No worker runs there. A marker with `or` may hold on Linux all the same.
ELSEWHERE = re.compile(
    r";(?!.*\bor\b).*(sys_platform|platform_system|os_name) == .(win32|darwin|Windows|Darwin|nt)\b"
)


@dataclass(frozen=True)
class Lock:
    """The text of a lock; `note` names the file of one that was made earlier."""

    text: str
    note: str = ""

    @property
    def packages(self) -> int:
        """The number of its packages on Linux; one with versions for two Pythons counts twice."""
        lines = filter(_is_package, self.text.splitlines())
        return sum(not ELSEWHERE.search(line) for line in lines)

    @property
    def digest(self) -> str:
        """Its SHA-256."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def stored(text: str) -> Path:
    """Return a file with a text, which stays."""
    path = locks() / f"{hashlib.sha256(text.encode()).hexdigest()}.txt"
    if not path.is_file():
        _write(path, text)
    return path


def lock(lines: str, python: Python | None) -> Lock:
    """Return the lock of packages that are complete and have versions."""
    words = CONTINUED.sub(" ", lines).splitlines()
    kept = [line.strip() for line in words if line.strip() and not line.strip().startswith("#")]
    # pip wants the digests of all packages or of none.
    if not all("--hash=" in line for line in kept if _is_package(line)):
        kept = [PIP_HASH.sub("", line) for line in kept]
    head = f"{PYTHON}{python.head}" if python else ANY_PYTHON
    return Lock("".join(f"{line}\n" for line in (head, *kept)))


def resolved(folder: Path, file: str | None, text: str, python: Python | None) -> Lock:
    """Resolve a requirements file of a project, or a pyproject.toml, and more requirements.

    Raises:
        NotLocked: it names files of the project, or cannot be resolved here.
    """
    texts = [*(_texts(folder, file) if file else []), text]
    if any(LOCAL.search(one) for one in texts):
        raise NotLocked("it names files of the project")
    key = hashlib.sha256(
        json.dumps([RECIPE, texts, python.head if python else None]).encode()
    ).hexdigest()
    path = locks() / f"{key}.txt"
    with suppress(OSError):
        known = path.read_text(encoding="utf-8")
        age_s = time.time() - path.stat().st_mtime
        old = f", as {duration_text(int(age_s))} ago; remove {path} to take newer ones"
        return Lock(known, old if age_s > OLD_S else "")
    options = [] if file and file.endswith(".toml") else _options(texts)
    lines = "\n".join((*options, _compiled(folder, file, text, python)))
    made = lock(lines, python)
    with suppress(OSError):
        _write(path, made.text)
    return made


def _compiled(folder: Path, file: str | None, text: str, python: Python | None) -> str:
    """Resolve for all Pythons from the oldest that a worker has, or else from the one here."""
    if python:
        return compiled(folder, file, text, python.lowest)
    oldest, here = (f"3.{minor}" for minor in (OLDEST, sys.version_info.minor))
    try:
        return compiled(folder, file, text, oldest)
    except NotLocked:
        if here == oldest:
            raise
        return compiled(folder, file, text, here)


def of_uv(folder: Path, python: Python | None, *, whole: bool) -> Lock:
    """Return the lock that uv.lock is; `whole` with its development groups.

    Raises:
        NotLocked: uv is missing or failed.
        ClientError: the lock is not up to date with pyproject.toml.
    """
    try:
        lines = exported(folder, whole=whole)
    except NotLocked as error:
        if STALE in str(error):
            raise ClientError(
                f"{folder / 'uv.lock'} is older than pyproject.toml",
                hint="`uv lock` updates it",
                code="requirements_invalid",
            ) from error
        raise
    packages = tomllib.loads((folder / "uv.lock").read_text(encoding="utf-8")).get("package", [])
    found = {str(one.get("source", {}).get("registry", PUBLIC)).rstrip("/") for one in packages}
    places = sorted(found - {PUBLIC})
    options = [f"--{'extra-index-url' if '://' in one else 'find-links'} {one}" for one in places]
    return lock("\n".join((*options, lines)), python)


def _texts(folder: Path, file: str) -> list[str]:
    """Return the texts of a list and of those that it includes."""
    texts: dict[Path, str] = {}
    rest = [folder / file]
    while rest:
        path = rest.pop().resolve()
        if path in texts:
            continue
        try:
            texts[path] = list_text(path.read_bytes())
        except OSError as error:
            raise NotLocked(f"{path} cannot be read") from error
        except UnicodeError as error:
            raise wrong(
                f"{path}: it is not UTF-8 text, nor of the encoding that it begins with",
                "save it as UTF-8",
            ) from error
        if not file.endswith(".toml"):
            rest += [path.parent / match[1] for match in NESTED.finditer(texts[path])]
    return list(texts.values())


def _options(texts: Iterable[str]) -> Iterator[str]:
    return (match[0] for text in texts for match in OPTION.finditer(text))


def _is_package(line: str) -> bool:
    return bool(line) and line[0] not in "-#"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{secrets.token_hex(8)}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
