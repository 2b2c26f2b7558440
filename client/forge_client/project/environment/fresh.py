"""Tell whether a lock still fits the list that it was made of, whichever tool wrote it.

A tool that keeps a digest of the list has the last word. Of all other locks, each direct dependency
must be there, in a version that the list allows.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forge_schema.model.quantities import names_text

from forge_client.errors import ClientError
from forge_client.project.environment.names import canonical
from forge_client.project.environment.tables import wrong

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# A dependency that not every one of these needs may be missing from a lock for one of them.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
MACHINES = ("x86_64", "aarch64")
Pins = Mapping[str, set[str]]
"""The versions of each package, by its canonical name; "" for one that comes from elsewhere."""


def stale(lock: Path, of: str, advice: str, why: str = "") -> ClientError:
    """Return the error for a lock that is older than its list, or than that of a package there."""
    other = f"; without it, {of} is resolved again"
    if lock.name != f"{of}.lock":
        other = f"; `--requirements {of}` takes what the list amounts to today"
    return wrong(
        f"{lock} is older than {of}{f': {why}' if why else ''}",
        f"{advice} updates it{'' if '/' in of else other}",
    )


def check_digest(lock: Path, of: Path, advice: str, kept: str, made: Iterable[str]) -> None:
    """Refuse a lock that keeps another digest of its list than any that its tool would make.

    Raises:
        ClientError: as said.
    """
    if kept not in set(made):
        raise stale(lock, of.name, advice)


def check_pins(
    lock: Path, of: str, advice: str, direct: Sequence[str], pins: Pins, *, part: bool = False
) -> None:
    """Refuse a lock that a direct dependency of its list is not in, or in another version.

    Args:
        lock: its file.
        of: the name of the list.
        advice: the command that makes the lock anew.
        direct: the dependencies, as requirements; what cannot be read as one is left out.
        pins: what is locked.
        part: whether the lock is of a part of the list, so that some may be missing.

    Raises:
        ClientError: as said.
    """
    for wanted in filter(None, map(_requirement, direct)):
        pinned = pins.get(canonical(wanted.name))
        if pinned is None and (part or not _needed(wanted)):
            continue
        if pinned is None:
            raise stale(lock, of, advice, f"{wanted.name} is not in it")
        if "" in pinned or wanted.url or not _needed(wanted):
            continue
        if not any(wanted.specifier.contains(version, prereleases=True) for version in pinned):
            versions = ", ".join(sorted(pinned))
            raise stale(
                lock, of, advice, f"it has {wanted.name} {versions}, not {wanted.specifier}"
            )


def check_platform(lock: Path, markers: Sequence[str]) -> None:
    """Refuse a lock for environments of which none is a Linux.

    Raises:
        ClientError: as said.
    """
    if markers and not any(map(may_hold, markers)):
        raise wrong(
            f"{lock} is for no Linux, but for {names_text(list(markers), 3)}",
            "add Linux to the environments that it is locked for, and lock it again",
        )


def may_hold(marker: str) -> bool:
    """Tell whether a marker holds on some Linux with some Python.

    Raises:
        ValueError: it is malformed.
    """
    # Few projects have a lock with one.
    from packaging.markers import Marker  # noqa: PLC0415

    return any(
        Marker(marker).evaluate({**_python(version), "platform_machine": machine})
        for version in PYTHONS
        for machine in MACHINES
    )


def _requirement(line: str) -> "Requirement | None":
    # Few projects have a lock that is not uv's.
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415

    try:
        return Requirement(line.partition(" #")[0])
    except InvalidRequirement:
        return None


def _needed(requirement: "Requirement") -> bool:
    """Tell whether every Linux needs it; without extras, which were chosen by name."""
    marker = requirement.marker
    return marker is None or all(marker.evaluate(_python(version)) for version in PYTHONS)


def _python(version: str) -> dict[str, str]:
    return {**LINUX, "python_version": version, "python_full_version": f"{version}.0"}
