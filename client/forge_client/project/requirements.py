"""Which file of a project says what is installed for its jobs."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from forge_client.errors import ClientError
from forge_client.project.bundle import Listing
from forge_client.project.request import Request

LISTED, PROJECT = "requirements.txt", "pyproject.toml"


def with_requirements(
    requests: Sequence[Request], listing: Listing, below: Mapping[str, Any] | None = None
) -> list[Request]:
    """Return requests that name the file, where they say nothing of it and there is one.

    Args:
        requests: the jobs.
        listing: what their bundle holds.
        below: the fields that a kept config gives them.

    Raises:
        ClientError: a file that is named is not in the bundle, or a pyproject.toml is not TOML.
    """
    found: list[str | None] = []  # looked for once, if at all
    return [_settled(request, listing, below or {}, found) for request in requests]


def _settled(
    request: Request, listing: Listing, below: Mapping[str, Any], found: list[str | None]
) -> Request:
    if request.requirements:
        _check(request.requirements, listing)
    silent = request.requirements is None and "requirements" not in below
    # A handler runs in the worker's own environment.
    if not silent or request.handler or below.get("handler"):
        return request
    if not found:
        found.append(_found(listing))
    return request.model_copy(update={"requirements": found[0]})


def _found(listing: Listing) -> str | None:
    paths = {entry.name: entry.path for entry in listing.files}
    if LISTED in paths:
        return LISTED
    if PROJECT not in paths:
        return None
    try:
        project = tomllib.loads(paths[PROJECT].read_text(encoding="utf-8")).get("project", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _wrong(
            f"{paths[PROJECT]}: {error}", "correct it, or submit with --no-install"
        ) from error
    return PROJECT if isinstance(project, dict) and project.get("dependencies") else None


def _check(path: str, listing: Listing) -> None:
    if path not in {entry.name for entry in listing.files}:
        raise _wrong(
            f"requirements: {path} is not in what is packed of {listing.root}",
            "name a file of the project by its path there; .forgeignore may leave it out",
        )


def _wrong(message: str, hint: str) -> ClientError:
    return ClientError(message, hint=hint, code="requirements_invalid")
