"""The images that a build left beside its own, which get names of ours; no other image does."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from docker.errors import APIError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker import DockerClient

    from forge_worker.runners.images.build_output import BuildOutput


def is_whole(client: DockerClient, tag: str, output: BuildOutput) -> bool:
    """Tell whether the build came to its image: the tag is then that of the last stage."""
    if output.failure or not output.ends:
        return False
    with suppress(APIError):
        return bool(client.images.get(tag).id == output.ends[-1])
    return False


def keep_parts(client: DockerClient, tag: str, output: BuildOutput, began: float) -> None:
    """Give the parts of a build its tag with a number; it began so, in seconds since 1970."""
    repository, _, key = tag.partition(":")
    whole = is_whole(client, tag, output)
    for number, image in enumerate(dict.fromkeys(_parts(client, output, began, whole=whole))):
        with suppress(APIError):
            client.api.tag(image, repository, f"{key}.{number}")


def _parts(
    client: DockerClient, output: BuildOutput, began: float, *, whole: bool
) -> Iterator[str]:
    for end in output.ends[:-1] if whole else output.ends:
        found = _found(client, end)
        # What has no parent was not made here: the stage did nothing.
        if found.get("Parent"):
            yield end
    # A command of the build may have printed that: it is believed of what is new and nobody's.
    last = _found(client, output.printed) if output.printed else {}
    if last.get("Parent") and not last["RepoTags"] and _made_at(last) >= began:
        yield last["Id"]


def _found(client: DockerClient, image: str) -> dict[str, Any]:
    with suppress(APIError):
        return dict(client.images.get(image).attrs)
    return {}


def _made_at(image: dict[str, Any]) -> float:
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(image["Created"]).timestamp()
    return 0.0
