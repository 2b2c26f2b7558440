"""The images as files: built from the wheel of a release, started, and saved with their parts."""

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import images
import parts
from building import call

# As a plain user on a read-only disk, which is how compose and Kubernetes run them.
LITTLE = ("--network", "none", "--read-only", "--cap-drop", "ALL")
STARTED = (
    "id -u && python -c 'from importlib.metadata import version as v; print(v(\"forge-queue\"))'"
)


def obstacle(base: str) -> str:
    """Return why no images can be built here, or nothing; fetch the base image if it is absent."""
    if not _works("version"):
        return "no Docker engine answers"
    if _works("image", "inspect", base) or _works("pull", base):
        return ""
    return (
        f"{base} is neither in the engine nor in a registry that it reaches; --base names another"
    )


def made(wheel: Path, folder: Path, base: str, tools: Path | None) -> Iterator[tuple[Path, str]]:
    """Build the images of a wheel; yield the archive of each and what to say about it."""
    images.fill(images.CONTEXT, wheel)
    version = wheel.name.split("-")[1]
    folder.mkdir(parents=True, exist_ok=True)
    for former in folder.glob("forge-*"):
        former.unlink()
    for name in images.IMAGES:
        image = f"forge-{name}:{version}"
        images.build(images.CONTEXT, name, image, base)
        start(image, f"forge-{name}", version)
        archive = folder / f"forge-{name}-{version}-{_architecture(image)}.tar.gz"
        save(image, archive)
        if tools:
            parts.of_image(tools, image, archive.with_name(f"forge-{name}-{version}.cdx.json"))
        yield archive, f"`docker load` makes `{image}` of it: {images.size(image) / 1e6:.0f} MB"


def start(image: str, program: str, version: str) -> None:
    """Start the program of an image once, and check who runs it and what is installed."""
    words = ("docker", "run", "--rm", *LITTLE, image, "sh", "-ec")
    user, installed, *_ = call(*words, f"{STARTED} && {program} --help").split()
    if user == "0" or installed != version:
        sys.exit(f"release: {image} runs version {installed} as user {user}, not {version}")


def save(image: str, archive: Path) -> None:
    """Write an image into a file for `docker load`."""
    with (
        subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saving,  # noqa: S603, S607 - an image of ours
        gzip.GzipFile(archive, "wb", compresslevel=6, mtime=0) as file,
    ):
        assert saving.stdout is not None  # noqa: S101 - for the types
        shutil.copyfileobj(saving.stdout, file, 1 << 20)
    if saving.returncode:
        archive.unlink()
        sys.exit(f"release: docker could not save {image}")


def _architecture(image: str) -> str:
    (found,) = json.loads(call("docker", "image", "inspect", image))
    name: str = found["Architecture"]
    return name


def _works(*words: str) -> bool:
    try:
        done = subprocess.run(["docker", *words], capture_output=True, check=False)  # noqa: S603, S607 - as above
    except OSError:
        return False
    return not done.returncode
