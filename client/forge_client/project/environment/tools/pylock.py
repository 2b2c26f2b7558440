"""Read pylock.toml, the lock of PEP 751: the packages of the extras and groups asked for."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forge_client.project.environment.fresh import check_pins, check_platform
from forge_client.project.environment.markers import Picked, decided
from forge_client.project.environment.tables import OF_PYPI, PROJECT, known, needed, wrong
from forge_client.project.environment.tools.rows import LockRows, Row

FILE = "pylock.toml"
AGAIN = "write it again with the tool that made it, such as `uv export --format pylock.toml`"
ALGORITHMS = frozenset({"sha256", "sha384", "sha512"})


def read(path: Path, picked: Picked) -> LockRows:
    """Return the packages in a pylock.toml.

    Raises:
        ClientError: it is malformed or older than its pyproject.toml, or has no such extra or
            group.
    """
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
        return _rows(path, said, picked)
    except KeyError as error:
        raise wrong(f"{path}: it is not a valid lock: {error} is missing", AGAIN) from error
    except (tomllib.TOMLDecodeError, ValueError, AttributeError, TypeError) as error:
        raise wrong(f"{path}: it is not a valid lock: {error}", AGAIN) from error


def _rows(path: Path, said: Mapping[str, Any], picked: Picked) -> LockRows:
    if not str(said["lock-version"]).startswith("1."):
        raise ValueError(f"lock-version {said['lock-version']} is not known")
    check_platform(path, said.get("environments", []))
    extras, groups = said.get("extras", []), said.get("dependency-groups", [])
    known(path, "extra", picked.extras, extras)
    known(path, "group", picked.groups, groups)
    asked = groups if picked.whole else [*said.get("default-groups", []), *picked.groups]
    found = [row for one in said["packages"] if (row := _row(one, picked.extras, asked))]
    rows = LockRows(found, _indexes(said["packages"]), str(said.get("requires-python", "")))
    project = path.with_name(PROJECT)
    if project.is_file():
        advice = f"`{said.get('created-by', 'uv')} lock`, and an export of it,"
        part = path.name != FILE
        check_pins(path, PROJECT, advice, needed(project, picked), rows.pins, part=part)
    return rows


def _row(one: Mapping[str, Any], extras: Sequence[str], groups: Sequence[str]) -> Row | None:
    marker = decided(one.get("marker", ""), extras, groups)
    if marker is None:
        return None
    digests = [digest for file in _files(one) for digest in _digests(file)]
    located = _located(one)
    return Row(one["name"], str(one.get("version", "")), located, marker, tuple(digests))


def _files(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*one.get("wheels", []), *filter(None, (one.get("sdist"), one.get("archive")))]


def _digests(file: Mapping[str, Any]) -> Iterator[str]:
    return (f"{name}:{said}" for name, said in file["hashes"].items() if name in ALGORITHMS)


def _located(one: Mapping[str, Any]) -> str:
    name = one["name"]
    for kind in ("vcs", "archive", "directory"):
        if kind in one:
            return _elsewhere(name, kind, one[kind])
    files = _files(one)
    only = files[0] if len(files) == 1 else {}
    if only.get("path") and not only.get("url"):
        return _at(only["path"])
    # Without an index, a package that is not on PyPI is nowhere else than at its URL.
    if "index" not in one and not only.get("url", OF_PYPI).startswith(OF_PYPI):
        return f"{name} @ {only['url']}"
    if not all(file.get("url") for file in files):
        raise ValueError(f"{name} has several files on the machine that wrote it")
    return f"{name}=={one['version']}"


def _elsewhere(name: str, kind: str, place: Mapping[str, Any]) -> str:
    below = f"#subdirectory={place['subdirectory']}" if place.get("subdirectory") else ""
    if kind == "vcs" and "url" in place:
        return f"{name} @ {place['type']}+{place['url']}@{place['commit-id']}{below}"
    if kind == "archive" and "url" in place:
        return f"{name} @ {place['url']}{below}"
    return f"{_at(place['path'])}{below}"


def _at(path: str) -> str:
    return path if path.startswith("/") else f"./{path}"


def _indexes(packages: Sequence[Mapping[str, Any]]) -> list[str]:
    return [one["index"] for one in packages if "index" in one]
