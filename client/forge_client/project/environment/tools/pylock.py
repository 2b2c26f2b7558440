"""Read pylock.toml, the lock of PEP 751: the packages of the extras and groups asked for."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forge_client.project.environment.fresh import check_pins, check_platform
from forge_client.project.environment.names import Picked, decided
from forge_client.project.environment.tables import OF_PYPI, PROJECT, known, needed, wrong
from forge_client.project.environment.tools import LockRows, Row

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
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        return _rows(path, document, picked)
    except KeyError as error:
        raise wrong(f"{path}: it is not a valid lock: {error} is missing", AGAIN) from error
    except (tomllib.TOMLDecodeError, ValueError, AttributeError, TypeError) as error:
        raise wrong(f"{path}: it is not a valid lock: {error}", AGAIN) from error


def _rows(path: Path, document: Mapping[str, Any], picked: Picked) -> LockRows:
    if not str(document["lock-version"]).startswith("1."):
        raise ValueError(f"lock-version {document['lock-version']} is not known")
    check_platform(path, document.get("environments", []))
    extras, groups = document.get("extras", []), document.get("dependency-groups", [])
    known(path, "extra", picked.extras, extras)
    known(path, "group", picked.groups, groups)
    asked = groups if picked.whole else [*document.get("default-groups", []), *picked.groups]
    packages = [row for entry in document["packages"] if (row := _row(entry, picked.extras, asked))]
    rows = LockRows(
        packages, _indexes(document["packages"]), str(document.get("requires-python", ""))
    )
    project = path.with_name(PROJECT)
    if project.is_file():
        advice = f"`{document.get('created-by', 'uv')} lock`, and an export of it,"
        part = path.name != FILE
        check_pins(path, PROJECT, advice, needed(project, picked), rows.pins, part=part)
    return rows


def _row(entry: Mapping[str, Any], extras: Sequence[str], groups: Sequence[str]) -> Row | None:
    marker = decided(entry.get("marker", ""), extras, groups)
    if marker is None:
        return None
    digests = [digest for file in _files(entry) for digest in _digests(file)]
    located = _located(entry)
    return Row(entry["name"], str(entry.get("version", "")), located, marker, tuple(digests))


def _files(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*entry.get("wheels", []), *filter(None, (entry.get("sdist"), entry.get("archive")))]


def _digests(file: Mapping[str, Any]) -> Iterator[str]:
    return (f"{name}:{digest}" for name, digest in file["hashes"].items() if name in ALGORITHMS)


def _located(entry: Mapping[str, Any]) -> str:
    name = entry["name"]
    for kind in ("vcs", "archive", "directory"):
        if kind in entry:
            return _elsewhere(name, kind, entry[kind])
    files = _files(entry)
    only = files[0] if len(files) == 1 else {}
    if only.get("path") and not only.get("url"):
        return _at(only["path"])
    # Without an index, a package that is not on PyPI is nowhere else than at its URL.
    if "index" not in entry and not only.get("url", OF_PYPI).startswith(OF_PYPI):
        return f"{name} @ {only['url']}"
    if not all(file.get("url") for file in files):
        raise ValueError(f"{name} has several files on the machine that wrote it")
    return f"{name}=={entry['version']}"


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
    return [package["index"] for package in packages if "index" in package]
