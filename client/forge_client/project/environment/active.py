"""The packages of the submitter's active environment, or of this Python's, as requirements."""

import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forge_client.errors import ClientError
from forge_client.project.environment.names import AN_EXTRA, canonical, extras_of, name_of

if TYPE_CHECKING:
    from importlib.metadata import Distribution

FORGE = "forge-queue"
# What any environment has, and what this command itself needs: no sign of a project.
TOOLS = frozenset({"pip", "setuptools", "wheel", "uv", FORGE})
# The extras of forge-queue that are there for the user's own programs.
OF_THE_USER = re.compile(r"extra\s*==\s*.(dev|examples|frames|parquet)\b")
# Builds of PyTorch for one kind of device; no other index has them.
TORCH_BUILD = re.compile(r"==\S+\+(cpu|cu\d+|rocm[\d.]+|xpu)$")
TORCH_INDEX = "https://download.pytorch.org/whl/"


@dataclass(frozen=True)
class Active:
    """An active environment: its packages with versions, and those that no index has."""

    name: str
    python: str
    pins: tuple[str, ...]
    left_out: tuple[str, ...]

    def text(self) -> str:
        """Return it as a list of requirements."""
        builds = {match[1] for pin in self.pins if (match := TORCH_BUILD.search(pin))}
        indexes = [f"--extra-index-url {TORCH_INDEX}{build}" for build in sorted(builds)]
        return "".join(f"{line}\n" for line in (*indexes, *self.pins))


def active_environment(variables: Mapping[str, str] = os.environ) -> Active | None:
    """Return the active environment, or None if it holds nothing but tools, or none is active.

    The base environment of conda is none of a project's, and is active by itself.
    """
    folder = _packages_folder(variables)
    if folder is None:
        return None
    from importlib.metadata import distributions  # noqa: PLC0415 - only for an environment

    installed = {
        canonical(distribution.name): distribution
        for distribution in distributions(path=[str(folder)])
    }
    own = _of_the_project(installed)
    pins = [_pin(name, installed[name]) for name in sorted(own)]
    sent = tuple(pin for pin in pins if pin is not None)
    left_out = tuple(name for name, pin in zip(sorted(own), pins, strict=True) if pin is None)
    if not own:
        return None
    python = folder.parent.name.removeprefix("python").rstrip("t")
    return Active(folder.parents[2].name, python, sent, left_out)


def with_module(module: str, variables: Mapping[str, str] = os.environ) -> str | None:
    """Return the name of the active environment if a module can be imported there."""
    folder = _packages_folder(variables)
    if folder and ((folder / module).is_dir() or (folder / f"{module}.py").is_file()):
        return folder.parents[2].name
    return None


def _packages_folder(variables: Mapping[str, str]) -> Path | None:
    conda = variables.get("CONDA_DEFAULT_ENV") != "base" and variables.get("CONDA_PREFIX")
    prefix = variables.get("VIRTUAL_ENV") or conda
    folders = sorted(Path(prefix).glob("lib/python3*/site-packages")) if prefix else []
    return folders[-1] if folders else None


def _of_the_project(installed: Mapping[str, "Distribution"]) -> set[str]:
    """Return the names of the packages that are not there only for the tools."""
    tools = _closure(TOOLS & installed.keys(), installed)
    own = {name for name in installed if name not in tools or _is_asked_for(name, installed[name])}
    return _closure(own, installed)


def _is_asked_for(name: str, distribution: "Distribution") -> bool:
    """Tell whether somebody named it to pip. Other installers do not write that down."""
    by_pip = (distribution.read_text("INSTALLER") or "").strip() == "pip"
    return name not in TOOLS and by_pip and distribution.read_text("REQUESTED") is not None


def _closure(names: Iterable[str], installed: Mapping[str, "Distribution"]) -> set[str]:
    """Return packages with all that they require, as far as it is installed."""
    closed: set[tuple[str, str]] = set()
    rest = [(name, "") for name in names]
    while rest:
        if (wanted := rest.pop()) not in closed and wanted[0] in installed:
            closed.add(wanted)
            rest += _needs(*wanted, installed[wanted[0]])
    return {name for name, _ in closed}


def _needs(name: str, extra: str, distribution: "Distribution") -> Iterator[tuple[str, str]]:
    """Yield what a package requires, or one of its extras: names, each with every extra of it."""
    for line in distribution.requires or []:
        asked = AN_EXTRA.search(line)
        wanted = not OF_THE_USER.search(line) if name == FORGE else (asked or ("", ""))[1] == extra
        if wanted:
            yield from ((name_of(line), each) for each in ("", *extras_of(line)))


def _pin(name: str, distribution: "Distribution") -> str | None:
    """Return the line that installs a package elsewhere; None if only this machine has it."""
    source = _source(distribution)
    # Conda notes the folder in which the package was built; the index has the same version.
    if source is None or (distribution.read_text("INSTALLER") or "").strip() == "conda":
        return f"{name}=={distribution.version}"
    url, vcs = str(source.get("url", "")), source.get("vcs_info")
    if isinstance(vcs, dict) and "://" in url and not url.startswith("file:"):
        return f"{name} @ {vcs.get('vcs')}+{url}@{vcs.get('commit_id')}"
    return f"{name} @ {url}" if url.startswith("https://") else None


def _source(distribution: "Distribution") -> dict[str, Any] | None:
    text = distribution.read_text("direct_url.json")
    if text is None:
        return None
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def installed(*names: str) -> list[str]:
    """Return the versions that are installed here, for `job(packages=…)`: `["numpy==2.3.5", …]`.

    Packages that come from a folder or a URL are left out with a warning: no index has them.

    Args:
        *names: packages to name, with what they require; all that are installed if none is given.

    Raises:
        ClientError: a package is not installed here.
    """
    packages = {canonical(package.name): package for package in _wanted(names)}
    local = [name for name, package in packages.items() if package.read_text("direct_url.json")]
    if local:
        warnings.warn(f"{', '.join(sorted(local))}: not from an index, so left out", stacklevel=2)
    return sorted(
        f"{name}=={package.version}" for name, package in packages.items() if name not in local
    )


def _wanted(names: tuple[str, ...]) -> list["Distribution"]:
    # Most commands need none of its package.
    from importlib.metadata import PackageNotFoundError, distribution, distributions  # noqa: PLC0415

    if not names:
        return list(distributions())
    packages: dict[str, Distribution] = {canonical(name): _named(name) for name in names}
    rest = list(packages)
    while rest:
        for needed in packages[rest.pop()].requires or []:
            name = "" if AN_EXTRA.search(needed) else name_of(needed)
            if name and name not in packages:
                try:
                    packages[name] = distribution(name)
                except PackageNotFoundError:
                    # It is for another platform or another Python.
                    continue
                rest.append(name)
    return list(packages.values())


def _named(name: str) -> "Distribution":
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - as above

    try:
        return distribution(name)
    except PackageNotFoundError as error:
        raise ClientError(
            f"{name} is not installed here",
            hint="give its name in the package index, as for `pip install`",
            code="name_unknown",
        ) from error
