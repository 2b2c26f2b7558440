"""What uv knows of a project besides its list: its workspace, and where packages are."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forge_client.project.environment.names import name_of
from forge_client.project.environment.tables import PROJECT, PUBLIC, table, wrong

LOCK, SETTINGS = "uv.lock", "uv.toml"
NO_INDEX = "--no-index"
# How Poetry says that an index is a page or a folder of files.
FLAT = "find_links"
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
    for parent in folder.parents:
        if (parent / PROJECT).is_file() and table(parent / PROJECT, "tool", "uv", "workspace"):
            yield parent


def _is_member(folder: Path, root: Path) -> bool:
    # A project that is the root of its own workspace is no member of another.
    if table(folder / PROJECT, "tool", "uv", "workspace"):
        return False
    settings = table(root / PROJECT, "tool", "uv", "workspace")
    return _matches(folder, root, settings.get("members")) and not _matches(
        folder, root, settings.get("exclude")
    )


def _matches(folder: Path, root: Path, patterns: object) -> bool:
    listed = patterns if isinstance(patterns, list) else []
    return any(folder in {path.resolve() for path in root.glob(str(each))} for each in listed)


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
    for above in (top, *top.parents):
        own = (above / SETTINGS).is_file() and table(above / SETTINGS)
        of_project = (above / PROJECT).is_file() and table(above / PROJECT, "tool", "uv")
        if settings := own or of_project:
            places = [_seen_from(folder, above, each) for each in settings.get("find-links", [])]
            return {**settings, "find-links": places}
    return {}


def _seen_from(folder: Path, where: Path, place: str) -> str:
    is_relative = "://" not in place and not Path(place).is_absolute()
    return os.path.relpath(where / place, folder) if is_relative else place


def index_options(*settings: Mapping[str, Any]) -> list[str]:
    """Return the options of a list that say where packages are, as some settings of uv do.

    The public index is where the worker says.
    """
    return list(dict.fromkeys(option for each in settings for option in _options(each)))


def _options(settings: Mapping[str, Any]) -> Iterator[str]:
    given = {**settings, **settings.get("pip", {})}
    if given.get("no-index"):
        yield NO_INDEX
    indexes = [*given.get("index", []), *({"url": url} for url in given.get("extra-index-url", []))]
    if "index-url" in given:
        indexes.append({"url": given["index-url"], "default": True})
    for index in indexes:
        url = str(index["url"])
        if "://" not in url or index.get("format") == "flat":
            yield f"--find-links {url}"
        elif url.rstrip("/") != PUBLIC:
            yield f"--{'index-url' if index.get('default') else 'extra-index-url'} {url}"
    yield from (f"--find-links {place}" for place in given.get("find-links", []))


def options_of_others(path: Path) -> list[str]:
    """Return the options for the indexes that a pyproject.toml names for PDM or Poetry.

    Raises:
        ClientError: it is malformed.
    """
    sources = [
        source
        for tool in ("pdm", "poetry")
        for source in table(path, "tool", tool).get("source", [])
    ]
    return [
        f"--{'find-links' if source.get('type') == FLAT else 'extra-index-url'} {source['url']}"
        for source in sources
        if source.get("url", PUBLIC).rstrip("/") != PUBLIC
    ]


def refuse_sources(path: Path, sources: Mapping[str, Any], listed: Sequence[str]) -> None:
    """Refuse packages for which only uv knows a place; an index may have namesakes of them.

    Raises:
        ClientError: as said.
    """
    for name in _among(listed, sources, lambda place: "index" not in place):
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
    for name in _among(listed, sources, lambda place: bool(PLACES & place.keys())):
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
        if name_of(name) in names and any(
            isinstance(source, dict) and test(source) for source in tables
        ):
            yield name
