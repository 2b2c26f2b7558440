"""Read Pipfile.lock: the packages of the default category, and of the categories asked for."""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from forge_client.project.environment.fresh import check_digest, may_hold
from forge_client.project.environment.names import Picked, canonical, decided
from forge_client.project.environment.tables import PUBLIC, known, none_of, wrong
from forge_client.project.environment.tools import LockRows, Row

LOCKS = "`pipenv lock`"
DEFAULT, FOR_TESTS = "default", "develop"
# What the Pipfile calls them.
NAMES = {"packages": DEFAULT, "dev-packages": FOR_TESTS, "dev": FOR_TESTS}
SETTINGS = frozenset(
    {"source", "packages", "dev-packages", "requires", "scripts", "pipfile", "pipenv"}
)
# What may stand there in place of `markers`.
CONDITIONS = (
    *("os_name", "sys_platform", "platform_machine", "platform_system", "platform_version"),
    *("python_version", "python_full_version", "implementation_name", "platform_release"),
)
PYPI = {"name": "pypi", "url": PUBLIC, "verify_ssl": True}


def read(path: Path, picked: Picked) -> LockRows:
    """Return the packages in a Pipfile.lock.

    Raises:
        ClientError: it is malformed or older than its Pipfile, or has no such category.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        about = document["_meta"]
        _check(path, about.get("hash", {}).get("sha256", ""))
        return _rows(path, document, picked)
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        hint = f"write it again with {LOCKS}; or name another list with --requirements"
        raise wrong(f"{path}: it is not a valid Pipfile.lock: {error}", hint) from error


def _rows(path: Path, document: Mapping[str, Any], picked: Picked) -> LockRows:
    none_of(path, "extra", picked.extras)
    there = document.keys() - {"_meta"}
    asked = [NAMES.get(group, group) for group in picked.groups]
    known(path, "group", asked, there - {DEFAULT})
    wanted = there if picked.whole else {DEFAULT, *asked}
    needs = document["_meta"].get("requires", {})
    full = str(needs.get("python_full_version") or "")
    version = str(needs.get("python_version") or ".".join(full.split(".")[:2]))
    listed = _listed(path)
    return LockRows(
        [
            _row(name, entry)
            for part in sorted(wanted)
            for name, entry in document.get(part, {}).items()
            if entry.get("version") != "*" or _is_needed(path, name, listed)
        ],
        [source["url"] for source in document["_meta"].get("sources", [])],
        f"=={version}.*" if version else "",
    )


def _is_needed(path: Path, name: str, listed: Mapping[str, Any]) -> bool:
    """Tell whether a package without a version is needed; Pipenv gives none to what it passes over.

    Raises:
        ClientError: some Linux may need it.
    """
    parts = [table for part, table in listed.items() if part not in SETTINGS or part in NAMES]
    tests = [
        _tests(table[key]) for table in parts for key in table if canonical(key) == canonical(name)
    ]
    if tests and not any(all(map(may_hold, each)) for each in tests):
        return False
    raise wrong(
        f"{path} has no version of {name}: it was locked where {name} is not needed",
        f"write it again with {LOCKS} on Linux; or name another list with --requirements",
    )


def _tests(listed: str | Mapping[str, str]) -> list[str]:
    """Return the markers of a package in a Pipfile, all of which must hold."""
    if isinstance(listed, str):
        return []
    tests = [f"{name} {listed[name]}" for name in CONDITIONS if name in listed]
    return [*tests, listed["markers"]] if listed.get("markers") else tests


def _row(name: str, entry: Mapping[str, Any]) -> Row:
    version = str(entry.get("version", "")).removeprefix("==")
    marker = decided(entry.get("markers", ""), (), ()) or ""
    return Row(
        name, version, _located(name, entry, version), marker, tuple(entry.get("hashes", ()))
    )


def _located(name: str, entry: Mapping[str, Any], version: str) -> str:
    for kind in ("git", "hg", "svn", "bzr"):
        if kind in entry:
            below = f"#subdirectory={entry['subdirectory']}" if entry.get("subdirectory") else ""
            return f"{name} @ {kind}+{entry[kind]}@{entry['ref']}{below}"
    if place := entry.get("path"):
        return str(place)
    if place := entry.get("file"):
        return f"{name} @ {place}" if "://" in place else str(place)
    if not version:
        raise KeyError("version")
    return f"{name}=={version}"


def _check(path: Path, kept: str) -> None:
    if listed := _listed(path):
        check_digest(path, path.with_name("Pipfile"), LOCKS, kept, digests(listed))


def _listed(path: Path) -> dict[str, Any]:
    """Return what is in the Pipfile beside a lock; nothing without one."""
    pipfile = path.with_name("Pipfile")
    return tomllib.loads(pipfile.read_text(encoding="utf-8")) if pipfile.is_file() else {}


def digests(listed: Mapping[str, Any]) -> Iterator[str]:
    """Yield the digests of a Pipfile; newer versions of Pipenv take canonical names."""
    for spelt in (lambda name: name, canonical):
        parts = {name: category for name, category in listed.items() if name not in SETTINGS}
        parts |= {NAMES[name]: listed.get(name, {}) for name in ("packages", "dev-packages")}
        content = {
            "_meta": {
                "sources": listed.get("source", [PYPI]),
                "requires": listed.get("requires", {}),
            },
            **{
                part: {spelt(name): package for name, package in packages.items()}
                for part, packages in parts.items()
            },
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        yield hashlib.sha256(text.encode()).hexdigest()
