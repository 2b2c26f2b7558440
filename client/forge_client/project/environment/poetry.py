"""Read poetry.lock: the packages of the project's main group, with their digests."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forge_client.errors import ClientError

MAIN = "main"
PUBLIC = "https://pypi.org/simple"


def read(path: Path, *, whole: bool) -> str:
    """Return a poetry.lock as a list of requirements; `whole` with all groups, else the main one.

    Raises:
        ClientError: it is malformed, or was written by a Poetry before 2.0.
    """
    try:
        packages = tomllib.loads(path.read_text(encoding="utf-8")).get("package", [])
        lines = [_line(one, whole=whole) for one in packages if _wanted(one, whole=whole)]
        indexes = sorted(set(_indexes(packages)))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise _wrong(f"{path}: it is not a valid poetry.lock: {error}", "`poetry lock`") from error
    except KeyError as error:
        raise _wrong(f"{path}: a package has no {error}", "Poetry 2: `poetry lock`") from error
    return "".join(f"{line}\n" for line in (*indexes, *lines))


def _wanted(one: Mapping[str, Any], *, whole: bool) -> bool:
    return (whole or MAIN in one["groups"]) and not one.get("optional")


def _line(one: Mapping[str, Any], *, whole: bool) -> str:
    marker = _marker(one, whole=whole)
    hashes = "".join(f" --hash={file['hash']}" for file in one.get("files", []))
    return f"{_located(one)}{f' ; {marker}' if marker else ''}{hashes}"


def _marker(one: Mapping[str, Any], *, whole: bool) -> str:
    """Return when a package is needed; groups may differ in that."""
    said = one.get("markers", "")
    if isinstance(said, str):
        return said
    groups: Sequence[str] = one["groups"] if whole else [MAIN]
    if any(group not in said for group in groups):
        return ""
    return " or ".join(f"({said[group]})" for group in groups)


def _located(one: Mapping[str, Any]) -> str:
    name, source = one["name"], one.get("source", {})
    match source.get("type"):
        case "git":
            return f"{name} @ git+{source['url']}@{source['resolved_reference']}"
        case "url":
            return f"{name} @ {source['url']}"
        case "directory" | "file":
            return f"./{source['url']}"
        case _:
            return f"{name}=={one['version']}"


def _indexes(packages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in packages:
        source = one.get("source", {})
        if source.get("type") == "legacy" and source["url"].rstrip("/") != PUBLIC:
            yield f"--extra-index-url {source['url']}"


def _wrong(message: str, tool: str) -> ClientError:
    return ClientError(
        message,
        hint=f"write it again with {tool}; or name another list with --requirements",
        code="requirements_invalid",
    )
