"""The images as files, built from the wheel of a release, started and saved; lists of all parts.

These lists (SBOM) are CycloneDX.
"""

import gzip
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import images
from building import ROOT, call, say, works

# As a plain user on a read-only disk, which is how compose and Kubernetes run them.
LITTLE = ("--network", "none", "--read-only", "--cap-drop", "ALL")
STARTED = (
    "id -u && python -c 'from importlib.metadata import version as v; print(v(\"forge-queue\"))'"
)
DEBIAN = ("dpkg-query", "--show", "--showformat", "${Package} ${Version} ${Architecture}\n")
# Where the images have our programs.
PLACE = "/opt/forge/lib"


def obstacle(base: str) -> str:
    """Return why no images can be built here, or nothing; fetch the base image if it is absent."""
    if not works("docker", "version"):
        return "no Docker engine answers"
    if works("docker", "image", "inspect", base) or works("docker", "pull", base):
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
        machine = images.inspected(image)["Architecture"]
        archive = folder / f"forge-{name}-{version}-{machine}.tar.gz"
        save(image, archive)
        said = f"`docker load` makes `{image}` of it: {images.size(image) / 1e6:.0f} MB"
        if tools:
            sbom = archive.with_name(f"forge-{name}-{version}.cdx.json")
            of_image(tools, image, sbom)
            said += f"; its parts are in `{sbom.name}`"
        yield archive, said


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


def of_environment(tools: Path, environment: Path, sbom: Path) -> None:
    """Write what is installed in an environment of Python."""
    of_project = ("--pyproject", ROOT / "pyproject.toml", "--output-reproducible")
    python = environment / "bin" / "python"
    call(tools / "cyclonedx-py", "environment", *of_project, "-o", sbom, python)
    say(sbom)


def of_image(tools: Path, image: str, sbom: Path) -> None:
    """Write what an image has: packages of Python and of Debian, and Python itself."""
    with TemporaryDirectory(prefix="forge-dist-") as folder:
        copied, environment = Path(folder, "lib"), Path(folder, "environment")
        container = call("docker", "create", image).strip()
        try:
            call("docker", "cp", f"{container}:{PLACE}", copied)
        finally:
            call("docker", "rm", container)
        venv.create(environment, with_pip=False, symlinks=True)
        (packages,) = copied.glob("python*/site-packages")
        (place,) = environment.glob("lib/python*/site-packages")
        place.rmdir()
        packages.rename(place)
        of_environment(tools, environment, sbom)
    within = ("docker", "run", "--rm", "--network", "none", image)
    _, number = call(*within, "python", "--version").split()
    found: dict[str, Any] = json.loads(sbom.read_text(encoding="utf-8"))
    found["components"] += [_part("generic", "python", number), *debian(call(*within, *DEBIAN))]
    sbom.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def debian(listed: str) -> Iterator[dict[str, str]]:
    """Yield the component of each line of `DEBIAN`."""
    for line in listed.splitlines():
        name, version, architecture = line.split()
        yield _part("deb/debian", name, version, f"?arch={architecture}")


def _part(kind: str, name: str, version: str, more: str = "") -> dict[str, str]:
    purl = f"pkg:{kind}/{quote(name, safe='')}@{quote(version, safe='')}{more}"
    named = {"name": name, "version": version, "purl": purl}
    return {"type": "library", "bom-ref": purl, **named}
