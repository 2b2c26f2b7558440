"""Build a project's Dockerfile with the engine's builder, within the operator's limits."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from docker.errors import APIError
from docker.utils import build as context_of
from docker.utils.json_stream import json_stream
from forge_schema.model.quantities import duration_text

from forge_worker.runners.runner import ImageMissing, StartFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import requests
    from docker import DockerClient

LAST_LINES = 10
LONGEST_LINE = 300
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MADE = re.compile(r" ---> ([0-9a-f]{12,64})")
# From version 26 on, the removal of a container has an arrow too.
NOISE = re.compile(r" ---> |Removing intermediate container ")
LOOK_S = 0.2
REQUEST_TIMEOUT_S = 120
OK = 200
MIB = 1 << 20
PERIOD = 100_000  # microseconds
TOO_LONG = "it took longer than the limit of {limit}"


class BuildOutput:
    """Pass on the lines of a build, and collect its results.

    `failure` is why there is no image, `last` has the last lines, and `ends` the images of the
    finished stages, which the engine reports separately. `printed` is a newer image named in a
    line, which the build's own commands could also have printed.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.ends: list[str] = []
        self.printed = ""
        self.failure = ""
        self.last: deque[str] = deque(maxlen=LAST_LINES)

    def hear(self, step: dict[str, Any]) -> None:
        """Process one message from the engine."""
        self.failure = self.failure or str(step.get("error", ""))
        if end := (step.get("aux") or {}).get("ID"):
            self.ends.append(end)
            self.printed = ""
        for line in str(step.get("stream", "")).splitlines():
            self._line(COLOUR.sub("", line).rstrip())

    def _line(self, line: str) -> None:
        if made := MADE.match(line):
            self.printed = made[1]
        elif line and not NOISE.match(line):
            self.last.append(line[:LONGEST_LINE])
            self._say(line)


def is_whole(client: DockerClient, tag: str, output: BuildOutput) -> bool:
    """Return whether the build finished: the tag is then on the last stage's image."""
    if output.failure or not output.ends:
        return False
    with suppress(APIError):
        return bool(client.images.get(tag).id == output.ends[-1])
    return False


def keep_parts(client: DockerClient, tag: str, output: BuildOutput, began: float) -> None:
    """Tag the parts of a build with numbers; `began` is its start in seconds since 1970."""
    repository, _, key = tag.partition(":")
    whole = is_whole(client, tag, output)
    for number, image in enumerate(dict.fromkeys(_parts(client, output, began, whole=whole))):
        with suppress(APIError):
            client.api.tag(image, repository, f"{key}.{number}")


def _parts(
    client: DockerClient, output: BuildOutput, began: float, *, whole: bool
) -> Iterator[str]:
    for end in output.ends[:-1] if whole else output.ends:
        image = _image(client, end)
        # An image without a parent was not built here: the stage was empty.
        if image.get("Parent"):
            yield end
    # A command of the build may have printed this line, so only a new, untagged image counts.
    last = _image(client, output.printed) if output.printed else {}
    if last.get("Parent") and not last["RepoTags"] and _made_at(last) >= began:
        yield last["Id"]


def _image(client: DockerClient, image: str) -> dict[str, Any]:
    with suppress(APIError):
        return dict(client.images.get(image).attrs)
    return {}


def _made_at(image: dict[str, Any]) -> float:
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(image["Created"]).timestamp()
    return 0.0


class BuildFailed(ImageMissing):
    """The project's Dockerfile does not build, and would not in the next attempt either."""


@dataclass(frozen=True)
class Build:
    """A build: the path of `dockerfile` in `folder`; `limit_s` in seconds, memory in MiB."""

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
    """Build and tag the image, passing each line of output to `say`.

    Intermediate images, also of a failed build, get the tag with a number: the next build continues
    from them, and no unknown image stays in the engine.

    Raises:
        BuildFailed: the Dockerfile is wrong, one of its commands failed, or it took too long.
        StartFailed: the engine became unreachable, or the build was cancelled.
    """
    output = BuildOutput(say)
    began = time.time()
    deadline = time.monotonic() + build.limit_s
    with (
        _answer(client, build) as answer,
        _watched(answer, stopped, deadline),
        # A cut connection has no useful error.
        suppress(OSError, ValueError),
    ):
        for step in json_stream(answer.iter_content(chunk_size=None)):
            output.hear(cast("dict[str, Any]", step))
    keep_parts(client, build.tag, output, began)
    if is_whole(client, build.tag, output):
        return
    if time.monotonic() >= deadline:
        raise _failed(build, TOO_LONG.format(limit=duration_text(build.limit_s)), output)
    if output.failure:
        raise _failed(build, output.failure, output)
    raise StartFailed(f"the engine ended the build of {build.dockerfile} without a reason")


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
    # Not with docker-py's `build`, whose response cannot be closed from another thread.
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
            raise BuildFailed(f"the engine rejected {build.dockerfile}: {_message(answer)}")
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
    """Close the connection at the deadline or if stopped, which ends the build in the engine."""
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
    text = "".join(f"\n  {line}" for line in output.last)
    return BuildFailed(
        f"{build.dockerfile} does not build: {why}; last output:{text}",
        hint="try it with docker build on your own machine",
    )
