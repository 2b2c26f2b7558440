"""Lists of the parts of what is released (SBOM), as CycloneDX."""

import json
import venv
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from building import ROOT, call, say

DEBIAN = ("dpkg-query", "--show", "--showformat", "${Package} ${Version} ${Architecture}\n")
# Where the images have our programs.
PLACE = "/opt/forge/lib"


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
