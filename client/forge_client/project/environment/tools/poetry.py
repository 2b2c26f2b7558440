"""Read poetry.lock: the packages of the main group, and of the extras and groups asked for.

Poetry keeps a digest of what it locked; since 2.3, the groups of PEP 735 are in it too.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forge_client.project.environment.fresh import check_digest, check_pins
from forge_client.project.environment.names import Picked, canonical, decided, name_of
from forge_client.project.environment.tables import (
    PROJECT,
    PUBLIC,
    dependencies,
    known,
    table,
    wrong,
)
from forge_client.project.environment.tools import LockRows, Row, digests_of

MAIN = "main"
LOCKS = "`poetry lock`"
# Of those of Poetry 1, some have the first number of Poetry 2.
VERSIONS = frozenset({"1", "2"})
MADE_BY = re.compile(r"#.*\bPoetry (\d+)\.(\d+)")
WITH_GROUPS = (2, 3)
# What each of Poetry's own tables has to do with a lock; those of old are in the digest if absent.
OLD_KEYS = ("dependencies", "source", "extras", "dev-dependencies")
PROJECT_KEYS = ("requires-python", "dependencies", "optional-dependencies")


def read(path: Path, picked: Picked) -> LockRows:
    """Return the packages in a poetry.lock.

    Raises:
        ClientError: it is malformed, older than its pyproject.toml, or was written by a Poetry
            before or after 2, or has no such extra or group.
    """
    try:
        lock = tomllib.loads(path.read_text(encoding="utf-8"))
        if not lock:
            raise wrong(f"{path} is empty", f"write it again with {LOCKS}")
        return _rows(path, lock, picked)
    except (tomllib.TOMLDecodeError, ValueError, AttributeError, TypeError) as error:
        hint = f"write it again with {LOCKS}; or name another list with --requirements"
        raise wrong(f"{path}: it is not a valid poetry.lock: {error}", hint) from error
    except KeyError as error:
        hint = f"write it again with {LOCKS}; or name another list with --requirements"
        raise wrong(f"{path}: a package has no {error}", hint) from error


def _check_version(path: Path, lock: Mapping[str, Any]) -> None:
    """Refuse the locks of Poetry 1, and those of a later one that may mean other things."""
    version = str(lock.get("metadata", {}).get("lock-version", ""))
    if version and version.partition(".")[0] not in VERSIONS:
        raise wrong(
            f"{path} has the lock-version {version}, which this Forge does not know",
            "update Forge where you submit, or name another list with --requirements",
        )
    if not all("groups" in package for package in lock.get("package", [])):
        raise wrong(
            f"{path} was written by Poetry 1, and does not say which packages are of which group",
            f"{LOCKS} of Poetry 2 writes it again with the same versions (`uvx poetry lock` runs"
            " that without an installation); or name another list with --requirements",
        )


def _rows(path: Path, lock: Mapping[str, Any], picked: Picked) -> LockRows:
    _check_version(path, lock)
    packages = lock.get("package", [])
    there = {group for package in packages for group in package["groups"]}
    known(path, "extra", picked.extras, lock.get("extras", {}))
    known(path, "group", picked.groups, there | _groups(path.with_name(PROJECT)))
    groups = there if picked.whole else {MAIN, *picked.groups}
    needed = [each for each in packages if _is_wanted(each, lock.get("extras", {}), picked)]
    rows = LockRows(
        [row for each in needed if (row := _row(each, groups, picked.extras))],
        list(_indexes(packages)),
        str(lock.get("metadata", {}).get("python-versions") or ""),
    )
    _check(path, lock, rows)
    return rows


def _check(path: Path, lock: Mapping[str, Any], rows: LockRows) -> None:
    project = path.with_name(PROJECT)
    if not project.is_file():
        return
    kept = lock.get("metadata", {}).get("content-hash")
    if kept:
        made_by = MADE_BY.match(path.read_text(encoding="utf-8"))
        old = made_by is None or tuple(map(int, made_by.groups())) < WITH_GROUPS
        check_digest(path, project, LOCKS, kept, digests(table(project), old=old))
    else:
        check_pins(path, PROJECT, LOCKS, dependencies(project), rows.pins)


def digests(project: Mapping[str, Any], *, old: bool) -> Iterator[str]:
    """Yield the digests that Poetry makes of a pyproject.toml, and an `old` one made.

    They are those of `poetry.packages.locker.Locker`.
    """
    own = project.get("tool", {}).get("poetry", {})
    new = {key: own[key] for key in (*OLD_KEYS, "group") if own.get(key) is not None}
    all_old = {key: own.get(key) for key in OLD_KEYS} | (
        {"group": own["group"]} if "group" in own else {}
    )
    about = project.get("project", {})
    ours = {key: about[key] for key in PROJECT_KEYS if about.get(key) is not None}
    groups = project.get("dependency-groups", {})
    with_groups = {"dependency-groups": groups} if groups else {}
    for more in (with_groups, {}) if old else (with_groups,):
        content = {**({"project": ours} if ours else {}), **more}
        yield _digest({**content, "tool": {"poetry": new}} if content else all_old)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _groups(project: Path) -> set[str]:
    """Return the groups of a project, which may have no packages."""
    if not project.is_file():
        return {MAIN}
    named = table(project, "dependency-groups"), table(project, "tool", "poetry", "group")
    return {MAIN}.union(*named)


def _is_wanted(package: Mapping[str, Any], extras: Mapping[str, Any], picked: Picked) -> bool:
    """Tell whether an optional package is of an extra that was asked for, as far as that is said.

    Otherwise its marker names the extra.
    """
    asked = {canonical(extra) for extra in picked.extras}
    of_them = [line for extra in extras if canonical(extra) in asked for line in extras[extra]]
    named = "extra" in str(package.get("markers", ""))
    return (
        named or not package.get("optional") or canonical(package["name"]) in map(name_of, of_them)
    )


def _row(package: Mapping[str, Any], groups: set[str], extras: Sequence[str]) -> Row | None:
    """Return a package; None if it is not needed."""
    wanted = [group for group in package["groups"] if group in groups]
    marker = decided(_marker(package, wanted), extras, ())
    if not wanted or marker is None:
        return None
    files = digests_of(package.get("files", []))
    return Row(package["name"], str(package.get("version", "")), _located(package), marker, files)


def _marker(package: Mapping[str, Any], groups: Sequence[str]) -> str:
    """Return when a package is needed; groups may differ in that."""
    written = package.get("markers", "")
    if isinstance(written, str):
        return written
    if any(group not in written for group in groups):
        return ""
    return " or ".join(f"({written[group]})" for group in groups)


def _located(package: Mapping[str, Any]) -> str:
    name, source = package["name"], package.get("source", {})
    match source.get("type"):
        case "git":
            below = f"#subdirectory={source['subdirectory']}" if source.get("subdirectory") else ""
            return f"{name} @ git+{source['url']}@{source['resolved_reference']}{below}"
        case "url":
            return f"{name} @ {source['url']}"
        case "directory" | "file":
            return f"./{source['url']}"
        case _:
            return f"{name}=={package['version']}"


def _indexes(packages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for package in packages:
        source = package.get("source", {})
        if source.get("type") == "legacy" and source["url"].rstrip("/") != PUBLIC:
            yield source["url"]
