"""The tables of a pyproject.toml."""

import tomllib
from pathlib import Path
from typing import Any

from forge_client.errors import ClientError

PROJECT = "pyproject.toml"


def table(path: Path, *keys: str) -> dict[str, Any]:
    """Return a table of a pyproject.toml; an empty one if it is not there.

    Raises:
        ClientError: the file is malformed.
    """
    try:
        found: Any = tomllib.loads(path.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
        raise wrong(f"{path}: {why}", "correct it, or submit with --no-install") from error
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def dependencies(path: Path) -> list[str]:
    """Return the dependencies in a pyproject.toml; none if it does not list them itself.

    Raises:
        ClientError: it is malformed.
    """
    found = table(path, "project").get("dependencies")
    return found if isinstance(found, list) else []


def wrong(message: str, hint: str) -> ClientError:
    """Return the error for a list that cannot be used."""
    return ClientError(message, hint=hint, code="requirements_invalid")
