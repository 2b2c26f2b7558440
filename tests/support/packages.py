"""Jobs of a folder as they would be sent, with the packages that they install."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_client.project.bundle import scan
from forge_client.project.request import Request
from forge_client.project.submission import with_packages

if TYPE_CHECKING:
    from pathlib import Path

    from forge_client.project.environment.packages import WithPackages


def sent(folder: Path, **changes: object) -> WithPackages:
    """Return a job of the folder as it would be sent."""
    return with_packages([Request().changed({"command": ["true"], **changes})], scan(folder))


def listed(whole: WithPackages) -> list[str]:
    """Return the lines of the list that a job installs."""
    path = whole.requests[0].requirements
    (entry,) = [one for one in whole.listing.files if one.name == path]
    return entry.path.read_text(encoding="utf-8").splitlines()


def pins(whole: WithPackages) -> list[str]:
    """Return the packages of that list, without their markers and digests."""
    lines = [line.partition(" ")[0] for line in listed(whole)]
    return [line for line in lines if not line.startswith(("#", "--"))]


def write(root: Path, files: dict[str, str]) -> Path:
    """Write the files of a project, and return its folder."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root
