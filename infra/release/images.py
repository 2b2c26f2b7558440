"""Build the images forge-server, forge-sweeper and forge-worker: `make images`.

Only the base image comes from a registry. The packages are downloaded here, and the build has no
network.
"""

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from building import ROOT, call
from building import build as build_wheel

DOCKER = ROOT / "infra" / "docker"
REQUIREMENTS = ROOT / "requirements"
CONTEXT = ROOT / "build" / "images"
BASE = "python:3.11-slim-bookworm"
PYTHON = "3.11"
GLIBC = ("2_28", "2_26", "2_17", "2014")
LISTS = ("functions.txt", "worker.txt")
IMAGES = ("server", "sweeper", "worker")


def main() -> None:
    """Build all and print their sizes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", default=BASE, help=f"image with Python {PYTHON}; default: {BASE}")
    parser.add_argument("--prefix", default="forge-", help="of the names; default: forge-")
    parser.add_argument("--context", type=Path, default=CONTEXT, help="folder to build from")
    parser.add_argument(
        "--context-only", action="store_true", help="fill the folder, build nothing"
    )
    given = parser.parse_args()
    fill(given.context)
    if given.context_only:
        return
    tag = version("forge-queue")
    for name in IMAGES:
        image = f"{given.prefix}{name}:{tag}"
        build(given.context, name, image, given.base)
        sys.stdout.write(f"{image}: {size(image) / 1e6:.0f} MB\n")


def fill(context: Path, wheel: Path | None = None) -> None:
    """Put everything that the images are built from into a folder, with a new wheel if none."""
    context.mkdir(parents=True, exist_ok=True)
    for file in (*DOCKER.iterdir(), *(REQUIREMENTS / name for name in LISTS)):
        shutil.copy(file, context)
    both = set.intersection(*(entries(REQUIREMENTS / name) for name in LISTS))
    (context / "both.txt").write_text("\n".join(sorted(both)), encoding="utf-8")
    download(context)
    # An image holds the wheel alone.
    project = context / "project"
    shutil.rmtree(project, ignore_errors=True)
    if wheel is None:
        _, sdist = build_wheel(project)
        sdist.unlink()
    else:
        project.mkdir()
        shutil.copy(wheel, project)


def entries(requirements: Path) -> set[str]:
    """Return the entries of a pinned list, each with its hashes."""
    found = re.split(
        r"\n(?=[a-z0-9])", requirements.read_text(encoding="utf-8"), flags=re.IGNORECASE
    )
    return {entry.strip() for entry in found if "==" in entry.partition(" ")[0]}


def download(context: Path) -> None:
    """Download the pinned packages for the images' Python, and its pip, unless they are there."""
    lists = [word for name in LISTS for word in ("-r", str(REQUIREMENTS / name))]
    _download(context / "packages", "--require-hashes", *lists)
    _download(context / "pip", f"pip=={version('pip')}")
    (wheel,) = (context / "pip").glob(f"pip-{version('pip')}-*.whl")
    shutil.copy(wheel, context / "pip.whl")


def _download(folder: Path, *wanted: str) -> None:
    folder.mkdir(exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download"]
    options = ["--no-deps", "--only-binary=:all:", "--implementation=cp"]
    options += [f"--python-version={PYTHON}", f"--dest={folder}", f"--find-links={folder}"]
    options += [f"--platform=manylinux{_joined(glibc)}_{platform.machine()}" for glibc in GLIBC]
    words = [*pip, *options, *wanted]
    # The second build asks no index.
    if subprocess.run([*words, "--no-index"], check=False, stderr=subprocess.DEVNULL).returncode:  # noqa: S603 - ours
        subprocess.run(words, check=True)  # noqa: S603 - as above


def _joined(glibc: str) -> str:
    return glibc if glibc == "2014" else f"_{glibc}"


def build(context: Path, target: str, image: str, base: str) -> None:
    """Build one image; those that follow reuse its layers."""
    words = ["docker", "build", "--quiet", "--network", "none", "--target", target, "--tag", image]
    done = subprocess.run(  # noqa: S603 - our own arguments
        [*words, "--build-arg", f"BASE={base}", str(context)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"images: {image} could not be built:\n{done.stdout}{done.stderr}")


def inspected(image: str) -> dict[str, Any]:
    """Return what the engine says of an image."""
    (found,) = json.loads(call("docker", "image", "inspect", image))
    said: dict[str, Any] = found
    return said


def size(image: str) -> int:
    """Return an image's size in bytes, its base included."""
    nbytes: int = inspected(image)["Size"]
    return nbytes


if __name__ == "__main__":
    main()
