"""Read pdm.lock: the packages of the default group, and of the extras and groups asked for."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forge_client.project.environment.fresh import check_digest, check_pins
from forge_client.project.environment.names import Picked, canonical, decided
from forge_client.project.environment.tables import PROJECT, dependencies, known, table, wrong
from forge_client.project.environment.tools import LockRows, Row, digests_of

DEFAULT = "default"
LOCKS = "`pdm lock`"
SHA256 = "sha256:"
AGAIN = "write it again with `pdm lock -G :all`; or name another list with --requirements"


def read(path: Path, picked: Picked) -> LockRows:
    """Return the packages in a pdm.lock.

    Raises:
        ClientError: it is malformed, older than its pyproject.toml, does not say to which group a
            package belongs, or has no such extra or group.
    """
    try:
        lock = tomllib.loads(path.read_text(encoding="utf-8"))
        if not lock:
            raise wrong(f"{path} is empty", f"write it again with {LOCKS}")
        return _rows(path, lock, picked)
    except (tomllib.TOMLDecodeError, ValueError, AttributeError, TypeError) as error:
        raise wrong(f"{path}: it is not a valid pdm.lock: {error}", AGAIN) from error
    except KeyError as error:
        hint = "`pdm lock --strategy inherit_metadata -G :all` writes it"
        raise wrong(f"{path}: a package has no {error}", hint) from error


def _rows(path: Path, lock: Mapping[str, Any], picked: Picked) -> LockRows:
    packages, about = lock.get("package", []), lock.get("metadata", {})
    there = {canonical(each) for each in about.get("groups", [])}
    known(path, "extra", picked.extras, there - {DEFAULT})
    known(path, "group", picked.groups, there - {DEFAULT})
    asked = {DEFAULT, *map(canonical, (*picked.extras, *picked.groups))}
    groups = there if picked.whole else asked
    rows = LockRows(
        [row for package in packages if (row := _row(package, groups))],
        _indexes(path.with_name(PROJECT)),
        " || ".join(
            each["requires_python"]
            for each in about.get("targets", [])
            if each.get("requires_python")
        ),
    )
    _check(path, str(about.get("content_hash", "")), rows)
    return rows


def _row(package: Mapping[str, Any], groups: set[str]) -> Row | None:
    if not groups.intersection(map(canonical, package["groups"])):
        return None
    marker = decided(package.get("marker", ""), (), ())
    files = digests_of(package.get("files", []))
    return Row(
        package["name"], str(package.get("version", "")), _located(package), marker or "", files
    )


def _located(package: Mapping[str, Any]) -> str:
    name, below = package["name"], package.get("subdirectory")
    if "git" in package:
        end = f"#subdirectory={below}" if below else ""
        return f"{name} @ git+{package['git']}@{package['revision']}{end}"
    if "path" in package:
        return str(package["path"])
    return f"{name} @ {package['url']}" if "url" in package else f"{name}=={package['version']}"


def _indexes(project: Path) -> list[str]:
    listed = _settings(project).get("source", [])
    return [
        index["url"] for index in listed if index.get("type", "index") == "index" and "url" in index
    ]


def _settings(project: Path) -> dict[str, Any]:
    return table(project, "tool", "pdm") if project.is_file() else {}


def _check(path: Path, kept: str, rows: LockRows) -> None:
    project = path.with_name(PROJECT)
    if not project.is_file():
        return
    # That of a workspace is made of all its members.
    if kept.startswith(SHA256) and "workspace" not in _settings(project):
        made = f"{SHA256}{digest(table(project))}"
        check_digest(path, project, LOCKS, kept, [made])
    else:
        check_pins(path, PROJECT, LOCKS, dependencies(project), rows.pins)


def digest(project: Mapping[str, Any]) -> str:
    """Return the digest that PDM makes of a pyproject.toml, as its `content_hash` does."""
    about, settings = project.get("project", {}), project.get("tool", {}).get("pdm", {})
    groups: dict[str, list[Any]] = {}
    for named in (project.get("dependency-groups", {}), settings.get("dev-dependencies", {})):
        for group, listed in named.items():
            groups.setdefault(canonical(group), []).extend(listed)
    content = {
        "sources": settings.get("source", []),
        "dependencies": about.get("dependencies", []),
        "dev-dependencies": groups,
        "optional-dependencies": about.get("optional-dependencies", {}),
        "requires-python": about.get("requires-python", ""),
        "resolution": settings.get("resolution", {}),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
