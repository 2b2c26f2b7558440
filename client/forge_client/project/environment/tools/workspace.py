"""The uv workspace that a project is a member of: its lock lies in another folder."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from forge_client.project.environment.tables import PROJECT, table

LOCK = "uv.lock"


def lock_of(folder: Path) -> Path | None:
    """Return the uv.lock of a project: its own, or that of the workspace that it is a member of.

    As uv does, it looks no further than the first workspace above.

    Raises:
        ClientError: a pyproject.toml is malformed.
    """
    folder = folder.resolve()
    if not (folder / PROJECT).is_file():
        return None
    root = next(_roots(folder), None)
    place = root if root and _is_member(folder, root) else folder
    return place / LOCK if (place / LOCK).is_file() else None


def _roots(folder: Path) -> Iterator[Path]:
    for one in folder.parents:
        if (one / PROJECT).is_file() and table(one / PROJECT, "tool", "uv", "workspace"):
            yield one


def _is_member(folder: Path, root: Path) -> bool:
    # A project that is the root of its own workspace is no member of another.
    if table(folder / PROJECT, "tool", "uv", "workspace"):
        return False
    said = table(root / PROJECT, "tool", "uv", "workspace")
    return _matches(folder, root, said.get("members")) and not _matches(
        folder, root, said.get("exclude")
    )


def _matches(folder: Path, root: Path, patterns: object) -> bool:
    listed = patterns if isinstance(patterns, list) else []
    return any(folder in {one.resolve() for one in root.glob(str(each))} for each in listed)


def sources_of(path: Path) -> Mapping[str, Any]:
    """Return where a pyproject.toml and its workspace say that packages are, as only uv reads it.

    Raises:
        ClientError: a pyproject.toml is malformed.
    """
    return table(path, "tool", "uv", "sources")
