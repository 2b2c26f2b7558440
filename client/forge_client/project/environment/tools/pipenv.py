"""Read Pipfile.lock: the packages of the default category, and of the categories asked for."""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from forge_client.project.environment.fresh import check_digest
from forge_client.project.environment.markers import Picked, decided
from forge_client.project.environment.names import canonical
from forge_client.project.environment.tables import PUBLIC, known, none_of, wrong
from forge_client.project.environment.tools.rows import LockRows, Row

LOCKS = "`pipenv lock`"
DEFAULT, FOR_TESTS = "default", "develop"
# What the Pipfile calls them.
NAMES = {"packages": DEFAULT, "dev-packages": FOR_TESTS, "dev": FOR_TESTS}
SETTINGS = frozenset(
    {"source", "packages", "dev-packages", "requires", "scripts", "pipfile", "pipenv"}
)
PYPI = {"name": "pypi", "url": PUBLIC, "verify_ssl": True}


def read(path: Path, picked: Picked) -> LockRows:
    """Return the packages in a Pipfile.lock.

    Raises:
        ClientError: it is malformed or older than its Pipfile, or has no such category.
    """
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        about = said["_meta"]
        _check(path, about.get("hash", {}).get("sha256", ""))
        return _rows(path, said, picked)
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        hint = f"write it again with {LOCKS}; or name another list with --requirements"
        raise wrong(f"{path}: it is not a valid Pipfile.lock: {error}", hint) from error


def _rows(path: Path, said: Mapping[str, Any], picked: Picked) -> LockRows:
    none_of(path, "extra", picked.extras)
    there = said.keys() - {"_meta"}
    asked = [NAMES.get(one, one) for one in picked.groups]
    known(path, "group", asked, there - {DEFAULT})
    wanted = there if picked.whole else {DEFAULT, *asked}
    needs = said["_meta"].get("requires", {})
    full = str(needs.get("python_full_version") or "")
    version = str(needs.get("python_version") or ".".join(full.split(".")[:2]))
    return LockRows(
        [_row(name, one) for part in sorted(wanted) for name, one in said.get(part, {}).items()],
        [one["url"] for one in said["_meta"].get("sources", [])],
        f"=={version}.*" if version else "",
    )


def _row(name: str, one: Mapping[str, Any]) -> Row:
    version = str(one.get("version", "")).removeprefix("==")
    marker = decided(one.get("markers", ""), (), ()) or ""
    return Row(name, version, _located(name, one, version), marker, tuple(one.get("hashes", ())))


def _located(name: str, one: Mapping[str, Any], version: str) -> str:
    for kind in ("git", "hg", "svn", "bzr"):
        if kind in one:
            below = f"#subdirectory={one['subdirectory']}" if one.get("subdirectory") else ""
            return f"{name} @ {kind}+{one[kind]}@{one['ref']}{below}"
    if place := one.get("path"):
        return str(place)
    if place := one.get("file"):
        return f"{name} @ {place}" if "://" in place else str(place)
    if not version:
        raise KeyError("version")
    return f"{name}=={version}"


def _check(path: Path, kept: str) -> None:
    pipfile = path.with_name("Pipfile")
    if pipfile.is_file():
        listed = tomllib.loads(pipfile.read_text(encoding="utf-8"))
        check_digest(path, pipfile, LOCKS, kept, digests(listed))


def digests(listed: Mapping[str, Any]) -> Iterator[str]:
    """Yield the digests of a Pipfile; newer versions of Pipenv take canonical names."""
    for spelt in (lambda name: name, canonical):
        parts = {name: one for name, one in listed.items() if name not in SETTINGS}
        parts |= {NAMES[name]: listed.get(name, {}) for name in ("packages", "dev-packages")}
        content = {
            "_meta": {
                "sources": listed.get("source", [PYPI]),
                "requires": listed.get("requires", {}),
            },
            **{
                part: {spelt(name): one for name, one in packages.items()}
                for part, packages in parts.items()
            },
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        yield hashlib.sha256(text.encode()).hexdigest()
