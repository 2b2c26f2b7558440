"""A Dockerfile is read as the engine reads it, so that nothing is fetched unannounced."""

from __future__ import annotations

import io
from contextlib import closing

import docker
from forge_worker.runners.images.building import BuildOutput
from forge_worker.runners.images.dockerfile import DockerfileRefused, images
from support.engine.images import BASE_IMAGE
from support.workers.runners import require_docker

# Nobody listens there, and the engine says so.
NOWHERE = "127.0.0.1:1"
FETCHING = [
    f"FROM\\\n {NOWHERE}/x:1",
    f"FROM {BASE_IMAGE}\nCOPY\\\n --from={NOWHERE}/x:1 /a /b",
    f'FROM {BASE_IMAGE}\nCOPY --fr""om={NOWHERE}/x:1 /a /b',
    f"FROM {BASE_IMAGE}\nCOPY --fr\\om={NOWHERE}/x:1 /a /b",
    f"FROM {BASE_IMAGE}\nCOPY --chown=\u00e0--from={NOWHERE}/x:1 /a /b",
    f'FROM {BASE_IMAGE}\nADD ["http:\\u002f\\u002f{NOWHERE}/x", "/b"]',
    f'ARG A={BASE_IMAGE}\nARG A={NOWHERE[:3]}"{NOWHERE[3:]}"/x:1\nFROM $A',
    f"ARG A={BASE_IMAGE}\nARG A={NOWHERE}/x:1 B=1\nFROM $A",
    f"ARG A={BASE_IMAGE}\nARG \\A={NOWHERE}/x:1\nFROM $A",
    f"\ufeff# escape=`\nFROM {BASE_IMAGE}\nENV A=\\\nCOPY --from={NOWHERE}/x:1 /a /b",
    f"FROM {BASE_IMAGE}\nENV A=1 \\\r \nCOPY --from={NOWHERE}/x:1 /a /b",
]
# The engine ignores the lines that look as if they fetched more.
HARMLESS = [
    f"# syntax={NOWHERE}/x:1\nFROM {BASE_IMAGE}",
    f"FROM {BASE_IMAGE}\nENV A=1 \\\n  # FROM {NOWHERE}/x:1\n\n B=2",
]


def said_by_engine(text: str) -> str:
    """Build it as a person at the engine would; return why that failed, if it did."""
    output = BuildOutput(lambda _: None)
    with closing(docker.from_env()) as engine:
        for step in engine.api.build(
            fileobj=io.BytesIO(text.encode()), rm=True, forcerm=True, decode=True
        ):
            output.hear(step)
        for made in filter(None, [output.printed, *output.ends]):
            if not engine.images.get(made).tags:
                engine.images.remove(made)
    return output.failure


def told(text: str) -> bool:
    """Tell whether we refuse it, or check the image that it would fetch."""
    try:
        return any(NOWHERE in image for image in images(text))
    except DockerfileRefused:
        return True


def test_engine_fetches_nothing_untold() -> None:
    require_docker()
    for text in FETCHING:
        assert NOWHERE in said_by_engine(text), text
        assert told(text), text
    for text in HARMLESS:
        assert said_by_engine(text) == "", text
        assert images(text) == [BASE_IMAGE]
