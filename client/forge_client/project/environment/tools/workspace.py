"""What uv knows of a project besides its list: its workspace, and where packages are."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forge_client.project.environment.names import name_of
from forge_client.project.environment.tables import PROJECT, PUBLIC, table, wrong

LOCK, SETTINGS = "uv.lock", "uv.toml"
NO_INDEX = "--no-index"
# What says in a table of Poetry that a package is not in the public index.
PLACES = {"path", "file", "git", "url", "source"}


def lock_of(folder: Path) -> Path | None:
    """Return the uv.lock of a project: its own, or that of the workspace that it is a member of.

    As uv does, it looks no further than the first workspace above.

    Raises:
        ClientError: a pyproject.toml is malformed.
    """
    folder = folder.resolve()
    if not (folder / PROJECT).is_file():
        return None
    place = _top(folder)
    return place / LOCK if (place / LOCK).is_file() else None


def _top(folder: Path) -> Path:
    """Return the root of the workspace that a folder is a member of, or else the folder."""
    root = next(_roots(folder), None)
    return root if root and _is_member(folder, root) else folder


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
    root = _top(path.parent.resolve()) / PROJECT
    return {**table(root, "tool", "uv", "sources"), **table(path, "tool", "uv", "sources")}


def settings_of(folder: Path) -> Mapping[str, Any]:
    """Return the settings that uv has for a folder, which may be those of one above.

    Folders with wheels are named from it.

    Raises:
        ClientError: a file with settings is malformed.
    """
    folder = folder.resolve()
    top = _top(folder)
    for one in (top, *top.parents):
        own = (one / SETTINGS).is_file() and table(one / SETTINGS)
        of_project = (one / PROJECT).is_file() and table(one / PROJECT, "tool", "uv")
        if found := own or of_project:
            places = [_seen_from(folder, one, each) for each in found.get("find-links", [])]
            return {**found, "find-links": places}
    return {}


def _seen_from(folder: Path, where: Path, place: str) -> str:
    is_relative = "://" not in place and not Path(place).is_absolute()
    return os.path.relpath(where / place, folder) if is_relative else place


def index_options(*settings: Mapping[str, Any]) -> list[str]:
    """Return the options of a list that say where packages are, as some settings of uv do.

    The public index is where the worker says.
    """
    return list(dict.fromkeys(one for each in settings for one in _options(each)))


def _options(settings: Mapping[str, Any]) -> Iterator[str]:
    said = {**settings, **settings.get("pip", {})}
    if said.get("no-index"):
        yield NO_INDEX
    indexes = [*said.get("index", []), *({"url": one} for one in said.get("extra-index-url", []))]
    if "index-url" in said:
        indexes.append({"url": said["index-url"], "default": True})
    for one in indexes:
        url = str(one["url"])
        if "://" not in url or one.get("format") == "flat":
            yield f"--find-links {url}"
        elif url.rstrip("/") != PUBLIC:
            yield f"--{'index-url' if one.get('default') else 'extra-index-url'} {url}"
    yield from (f"--find-links {one}" for one in said.get("find-links", []))


def options_of_others(path: Path) -> list[str]:
    """Return the options for the indexes that a pyproject.toml names for PDM or Poetry.

    Raises:
        ClientError: it is malformed.
    """
    found = [
        one for tool in ("pdm", "poetry") for one in table(path, "tool", tool).get("source", [])
    ]
    return [
        f"--{'find-links' if one.get('type') == 'find_links' else 'extra-index-url'} {one['url']}"
        for one in found
        if one.get("url", PUBLIC).rstrip("/") != PUBLIC
    ]


def refuse_sources(path: Path, sources: Mapping[str, Any], listed: Sequence[str]) -> None:
    """Refuse packages for which only uv knows a place; an index may have namesakes of them.

    Raises:
        ClientError: as said.
    """
    for name in _among(listed, sources, lambda one: "index" not in one):
        raise wrong(
            f"{path} takes {name} from [tool.uv.sources], which only uv reads, and uv could not"
            " lock it here",
            "`uv lock` says why; a member of a workspace is submitted from where the rest of it is"
            " beside it",
        )


def refuse_places_of_poetry(path: Path, listed: Sequence[str]) -> None:
    """Refuse packages that a pyproject.toml lists, and for which only Poetry knows a place.

    Raises:
        ClientError: as said.
    """
    sources = table(path, "tool", "poetry", "dependencies")
    for name in _among(listed, sources, lambda one: bool(PLACES & one.keys())):
        raise wrong(
            f"{path} takes {name} from [tool.poetry.dependencies], which only Poetry reads",
            "`poetry lock` writes a lock, which is taken in its place",
        )


def _among(
    listed: Sequence[str], sources: Mapping[str, Any], test: Callable[[dict[str, Any]], bool]
) -> Iterator[str]:
    """Yield the packages of a list with a source that passes a test."""
    names = set(map(name_of, listed))
    for name, place in sources.items():
        tables = place if isinstance(place, list) else [place]
        if name_of(name) in names and any(isinstance(one, dict) and test(one) for one in tables):
            yield name
