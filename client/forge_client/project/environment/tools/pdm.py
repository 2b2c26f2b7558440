"""Read pdm.lock: the packages of the default group, and of the extras and groups asked for."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forge_client.project.environment.fresh import check_digest, check_pins
from forge_client.project.environment.markers import Picked, decided
from forge_client.project.environment.names import canonical
from forge_client.project.environment.tables import PROJECT, dependencies, known, table, wrong
from forge_client.project.environment.tools.rows import LockRows, Row, digests_of

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
        said = tomllib.loads(path.read_text(encoding="utf-8"))
        if not said:
            raise wrong(f"{path} is empty", f"write it again with {LOCKS}")
        return _rows(path, said, picked)
    except (tomllib.TOMLDecodeError, ValueError, AttributeError, TypeError) as error:
        raise wrong(f"{path}: it is not a valid pdm.lock: {error}", AGAIN) from error
    except KeyError as error:
        hint = "`pdm lock --strategy inherit_metadata -G :all` writes it"
        raise wrong(f"{path}: a package has no {error}", hint) from error


def _rows(path: Path, said: Mapping[str, Any], picked: Picked) -> LockRows:
    packages, about = said.get("package", []), said.get("metadata", {})
    there = {canonical(one) for one in about.get("groups", [])}
    known(path, "extra", picked.extras, there - {DEFAULT})
    known(path, "group", picked.groups, there - {DEFAULT})
    asked = {DEFAULT, *map(canonical, (*picked.extras, *picked.groups))}
    groups = there if picked.whole else asked
    found = LockRows(
        [row for one in packages if (row := _row(one, groups))],
        _indexes(path.with_name(PROJECT)),
        " || ".join(
            one["requires_python"] for one in about.get("targets", []) if one.get("requires_python")
        ),
    )
    _check(path, str(about.get("content_hash", "")), found)
    return found


def _row(one: Mapping[str, Any], groups: set[str]) -> Row | None:
    if not groups.intersection(map(canonical, one["groups"])):
        return None
    marker = decided(one.get("marker", ""), (), ())
    files = digests_of(one.get("files", []))
    return Row(one["name"], str(one.get("version", "")), _located(one), marker or "", files)


def _located(one: Mapping[str, Any]) -> str:
    name, below = one["name"], one.get("subdirectory")
    if "git" in one:
        end = f"#subdirectory={below}" if below else ""
        return f"{name} @ git+{one['git']}@{one['revision']}{end}"
    if "path" in one:
        return str(one["path"])
    return f"{name} @ {one['url']}" if "url" in one else f"{name}=={one['version']}"


def _indexes(project: Path) -> list[str]:
    listed = _settings(project).get("source", [])
    return [one["url"] for one in listed if one.get("type", "index") == "index" and "url" in one]


def _settings(project: Path) -> dict[str, Any]:
    return table(project, "tool", "pdm") if project.is_file() else {}


def _check(path: Path, kept: str, found: LockRows) -> None:
    project = path.with_name(PROJECT)
    if not project.is_file():
        return
    # That of a workspace is made of all its members.
    if kept.startswith(SHA256) and "workspace" not in _settings(project):
        made = f"{SHA256}{digest(table(project))}"
        check_digest(path, project, LOCKS, kept, [made])
    else:
        check_pins(path, PROJECT, LOCKS, dependencies(project), found.pins)


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
