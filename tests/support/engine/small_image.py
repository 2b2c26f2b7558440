"""A small image, built from this machine's own shell, and helpers for images based on it."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from docker.errors import APIError
from forge_worker.runners.images import own_images
from support.workers.runners import require_docker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker import DockerClient

PROGRAMS = ("sh", "cat", "sleep")


def layer(**files: bytes) -> bytes:
    """Return a tar with a shell, a few programs, and files in its root."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(_parts()):
            info = tarfile.TarInfo(path.lstrip("/"))
            data = Path(path).resolve().read_bytes()
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def _parts() -> set[str]:
    programs = {f"/bin/{name}" for name in PROGRAMS}
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True)
    return programs | set(re.findall(r"(/\S+\.so\S*) \(", listed.stdout))


@contextmanager
def small_image(engine: DockerClient, **files: bytes) -> Iterator[str]:
    """Yield a uniquely named image that contains `files`, so that no two images are the same."""
    require_docker()
    name = f"forge-test-{uuid.uuid4().hex[:12]}:latest"
    repository = name.partition(":")[0]
    data = layer(unlike=os.urandom(16), **files)
    engine.api.import_image_from_data(data, repository=repository, tag="latest")
    try:
        yield name
    finally:
        remove_images(engine, name)


def saved(engine: DockerClient, name: str, into: Path) -> Path:
    """Save an image as `docker save` does."""
    with into.open("wb") as file:
        for piece in engine.api.get_image(name):
            file.write(piece)
    return into


def images_named(engine: DockerClient, part: str) -> list[str]:
    """Return the names of the engine's images that contain a word, as Docker writes them.

    Marks of a use are left out.
    """
    # `images.list` asks for each image of the list, which another test may have removed meanwhile.
    tags = [tag for image in engine.api.images() for tag in image["RepoTags"] or ()]
    return sorted({short(tag) for tag in tags if part in tag and not own_images.USED.search(tag)})


def short(name: str) -> str:
    """Return a name without what only Podman writes."""
    return name.removeprefix("docker.io/library/").removeprefix("localhost/")


def remove_images(engine: DockerClient, *names: str) -> None:
    """Remove names with their marks, and images that have no other name."""
    for name in names:
        with suppress(APIError):
            tags = engine.images.get(name).tags
            ours = (
                tag for tag in tags if short(tag) == name or short(tag).startswith(f"{name}.used-")
            )
            for one in ours:
                engine.images.remove(one, force=True)
