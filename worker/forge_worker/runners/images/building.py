"""Builds a project's Dockerfile by the engine's own builder, within the operator's limits."""

from __future__ import annotations

import json
import threading
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from docker.utils import build as context_of
from docker.utils.json_stream import json_stream

from forge_worker.runners.images.build_output import BuildOutput
from forge_worker.runners.images.build_parts import is_whole, keep_parts
from forge_worker.runners.runner import ImageMissing, StartFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import requests
    from docker import DockerClient

LOOK_S = 0.2
REQUEST_TIMEOUT_S = 120
OK = 200
MIB = 1 << 20
PERIOD = 100_000  # microseconds
TOO_LONG = "it took longer than the {limit:.0f} s that a build may take"


class BuildFailed(ImageMissing):
    """The project's Dockerfile does not build: the next attempt would come to the same."""

    code = "build_failed"


@dataclass(frozen=True)
class Build:
    """What to build: `dockerfile` lies in `folder`; `limit_s` in seconds, memory in MiB."""

    folder: Path
    dockerfile: str
    tag: str
    network: str
    cpus: float
    memory_mb: int
    swap_mb: int
    limit_s: float


def run_build(
    client: DockerClient, build: Build, say: Callable[[str], None], stopped: Callable[[], bool]
) -> None:
    """Build, telling each line of output; the image then has the tag.

    What the stages of the build left, or one that failed, has the tag with a number: the next
    build begins there, and nothing stays in the engine that nobody knows of.

    Raises:
        BuildFailed: the Dockerfile is wrong, one of its commands failed, or it took too long.
        StartFailed: the engine went away, or the build was not wanted any more.
    """
    output = BuildOutput(say)
    began = time.time()
    deadline = time.monotonic() + build.limit_s
    with (
        _answer(client, build) as answer,
        _watched(answer, stopped, deadline),
        # A connection that was cut says nothing but that.
        suppress(OSError, ValueError),
    ):
        for step in json_stream(answer.iter_content(chunk_size=None)):
            output.hear(cast("dict[str, Any]", step))
    keep_parts(client, build.tag, output, began)
    if is_whole(client, build.tag, output):
        return
    if time.monotonic() >= deadline:
        raise _failed(build, TOO_LONG.format(limit=build.limit_s), output)
    if output.failure:
        raise _failed(build, output.failure, output)
    raise StartFailed(f"the engine ended the build of {build.dockerfile} without a word")


@contextmanager
def _answer(client: DockerClient, build: Build) -> Iterator[requests.Response]:
    api = client.api
    limits = {
        "memory": build.memory_mb * MIB,
        "memswap": (build.memory_mb + build.swap_mb) * MIB,
        "cpuperiod": PERIOD,
        "cpuquota": int(build.cpus * PERIOD),
    }
    asked: dict[str, str | int | bool] = {
        "t": build.tag,
        "dockerfile": build.dockerfile,
        "networkmode": build.network,
        "rm": True,
        "forcerm": True,
        "labels": json.dumps({"forge.image": "build"}),
        **limits,
    }
    # Not by docker-py's own `build`, whose answer nobody but its reader could end.
    packed = context_of.tar(
        build.folder, exclude=_ignored(build), dockerfile=(build.dockerfile, None)
    )
    with closing(packed):
        answer = api.post(
            f"{api.base_url}/v{api.api_version}/build",
            params=asked,
            data=cast("Iterable[bytes]", packed),
            headers={"Content-Type": "application/x-tar"},
            stream=True,
            timeout=(REQUEST_TIMEOUT_S, build.limit_s + REQUEST_TIMEOUT_S),
        )
    with closing(answer):
        if answer.status_code != OK:
            raise BuildFailed(f"the engine refuses {build.dockerfile}: {_message(answer)}")
        yield answer


def _message(answer: requests.Response) -> str:
    with suppress(ValueError):
        return str(answer.json()["message"])
    return answer.text


def _ignored(build: Build) -> list[str]:
    file = build.folder / ".dockerignore"
    if not file.is_file():
        return []
    lines = (line.strip() for line in file.read_text(errors="replace").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


@contextmanager
def _watched(
    answer: requests.Response, stopped: Callable[[], bool], deadline: float
) -> Iterator[None]:
    """Hang up when the time is over or nobody wants the build any more: that ends it there."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            if stopped() or time.monotonic() >= deadline:
                with suppress(OSError, ValueError):
                    answer.raw.shutdown()
                return

    thread = threading.Thread(target=watch, name="build watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _failed(build: Build, why: str, output: BuildOutput) -> BuildFailed:
    said = "".join(f"\n  {line}" for line in output.last)
    return BuildFailed(
        f"{build.dockerfile} does not build: {why}; its last words:{said}",
        hint="try it with docker build on a machine of yours",
    )
