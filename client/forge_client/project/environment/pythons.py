"""The versions of Python that a project asks for."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from forge_schema.model.bundles import list_text

from forge_client.errors import ClientError
from forge_client.project.environment.tables import PROJECT, table

PYTHON_FILE, SETUP = ".python-version", "setup.cfg"
# The oldest Python of a worker without containers, and the newest that anybody may have meanwhile.
OLDEST, NEWEST = 11, 20
# uv resolves packages for no Python that is older.
RESOLVED = 6
# No version has so many corrections.
MICROS = range(64)
# As pyenv and uv write it: 3.12.4, cpython@3.12, cpython-3.12.4-linux-x86_64-gnu, 3.12/envs/me.
PINNED = re.compile(
    r"(?:(?:cpython|python)[-@]?)?(\d+\.\d+)(?:\.\d+)?(?:(?:a|b|rc)\d+)?(?:[-/].*)?"
)
# It may be any.
ANY = re.compile(r"(?:(?:cpython|python)[-@]?)?3?|system|any|default")
CLAUSE = re.compile(r"\s*(===|~=|==|!=|>=|<=|>|<|\^|~|)\s*v?(\d+(?:\.\d+)*)(\.\*)?[\w.+-]*\s*")
Version = tuple[int, ...]


@dataclass(frozen=True)
class Python:
    """Versions such as `3.12`, any of which will do, the best first; `text` is for people."""

    versions: tuple[str, ...]
    text: str
    where: str = ""

    @property
    def lowest(self) -> str:
        """The lowest of them."""
        return min(self.versions, key=lambda version: [int(part) for part in version.split(".")])

    @property
    def head(self) -> str:
        """Them all, as the first line of a lock names them."""
        return " ".join(self.versions) + (f" ({self.text})" if len(self.versions) > 1 else "")


def exactly(version: str, where: str = "") -> Python:
    """Return one version."""
    return Python((version,), version, where)


def asked_for(files: Mapping[str, Path]) -> Python | None:
    """Return the Python that a project asks for, whatever its packages; None if any will do.

    Raises:
        ClientError: its pyproject.toml is malformed.
    """
    if pin := pinned(files):
        return pin
    for where, text in _ranges(files):
        if text.strip():
            return within(text.strip(), where)
    return None


def pinned(files: Mapping[str, Path]) -> Python | None:
    """Return the Python in the project's .python-version; None if it names none.

    Raises:
        ClientError: what it names is none that Forge looks for.
    """
    path = files.get(PYTHON_FILE)
    lines = [line.partition("#")[0].strip() for line in _text(path).splitlines()] if path else []
    pin = next(filter(None, lines), "")
    if ANY.fullmatch(pin):
        return None
    if match := PINNED.fullmatch(pin):
        return exactly(match[1], PYTHON_FILE)
    if pin[:1] in set("<>=!~^"):
        return within(pin, PYTHON_FILE)
    raise ClientError(
        f"{PYTHON_FILE}: {pin!r} is none of the versions of CPython that Forge looks for",
        hint="write a version such as 3.12 there, and take another Python with --image",
        code="requirements_invalid",
    )


def within(text: str, where: str) -> Python | None:
    """Return the versions in a range such as `>=3.12,<3.14`; None if every worker has one.

    Raises:
        ClientError: it is no range, or no version of Python that can be had is in it.
    """
    try:
        fits = [minor for minor in range(RESOLVED, NEWEST + 1) if _fits(text, minor)]
    except ValueError as error:
        raise _wrong(f"{where}: {text!r} is no range of versions of Python") from error
    if not fits:
        raise _wrong(f"{where}: no Python from 3.{RESOLVED} on is in {text!r}")
    ours = [minor for minor in fits if minor >= OLDEST]
    if len(ours) > NEWEST - OLDEST:
        return None
    # Of those that are too old for a worker itself, the newest is the likeliest to be there.
    return Python(tuple(f"3.{minor}" for minor in ours or fits[::-1]), text, where)


def _ranges(files: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    if path := files.get(PROJECT):
        yield PROJECT, str(table(path, "project").get("requires-python") or "")
        poetry = table(path, "tool", "poetry", "dependencies").get("python") or ""
        yield PROJECT, str(poetry.get("version", "") if isinstance(poetry, dict) else poetry)
    if path := files.get(SETUP):
        yield SETUP, setup_option(path, "python_requires")


def setup_option(path: Path, name: str, section: str = "options") -> str:
    """Return an option of a setup.cfg; "" without it, or if the file is malformed."""
    import configparser  # noqa: PLC0415 - only for such a file

    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(_text(path))
    except configparser.Error:
        return ""
    return parser.get(section, name, fallback="").strip()


def _fits(text: str, minor: int) -> bool:
    """Tell whether a range has a 3.`minor`; as Poetry writes it, `||` may be in it, and `^`."""
    tests = [
        [_clause(clause) for clause in part.split(",") if clause.strip()]
        for part in text.split("||")
    ]
    return any(
        all(test((3, minor, micro)) for test in every) for every in tests for micro in MICROS
    )


def _clause(text: str) -> Callable[[Version], bool]:
    if text.strip() == "*":
        return lambda _: True
    match = CLAUSE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    number = tuple(int(part) for part in match[2].split("."))
    return partial(_holds, match[1] or "==", number, bool(match[3]))


def _holds(sign: str, number: Version, any_below: bool, version: Version) -> bool:  # noqa: FBT001 - bound by position
    least = (*number, 0, 0)[: len(version)]
    begins = version[: len(number)] == number
    match sign:
        case "==" | "===":
            return begins if any_below or len(number) < len(version) else version == least
        case "!=":
            return not begins if any_below else version != least
        case "~=":
            return version >= least and version[: len(number) - 1] == number[:-1]
        case "~":
            return version >= least and version[: len(number[:2])] == number[:2]
        case "^":
            return version >= least and version[0] == number[0]
    compared = {">=": version >= least, "<=": version <= least, ">": version > least}
    return compared.get(sign, version < least)


def _text(path: Path) -> str:
    try:
        return list_text(path.read_bytes())
    except UnicodeError:
        return ""


def _wrong(message: str) -> ClientError:
    return ClientError(
        message,
        hint="correct it there, or name a version in .python-version, which comes before it",
        code="requirements_invalid",
    )
