"""Read pixi.lock and conda-lock.yml as far as packages of the Python index can replace conda's.

Most of what conda installs are libraries of its own builds, which the wheels of the index bring
along. So what the project itself asks for is taken, in the version of the lock, and all that the
lock has from the index of Python packages.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from forge_schema.model.bundles import list_text

from forge_client.project.environment.fresh import check_pins
from forge_client.project.environment.names import NAME, canonical, name_of
from forge_client.project.environment.tables import OF_PYPI, PROJECT, dependencies, table, wrong
from forge_client.project.environment.tools import conda

PLATFORM, DEFAULT = "linux-64", "default"
PIXI, PIXI_LIST = "pixi.lock", "pixi.toml"
# The project itself, which is not installed.
HERE = {".", "./"}
LISTS = ("environment.yml", "environment.yaml")


@dataclass(frozen=True)
class Locked:
    """A package of a lock; `needs` are the names of those that it requires."""

    name: str
    version: str
    by_conda: bool
    needs: Sequence[str] = ()
    place: str = ""


def read(path: Path) -> conda.Conda:
    """Read a pixi.lock or conda-lock.yml.

    Raises:
        ClientError: it is malformed, older than the project's list, has nothing for Linux, or the
            project asks for packages that are not Python's.
    """
    # Few projects have such a file.
    import yaml  # noqa: PLC0415

    pixi = path.name == PIXI
    try:
        document = yaml.safe_load(list_text(path.read_bytes()))
        packages = list(_of_pixi(document) if pixi else _of_conda_lock(document))
    except (yaml.YAMLError, UnicodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise wrong(
            f"{path}: it is not a lock that is understood: {what}",
            "write it again, or name another list with --requirements",
        ) from error
    listed = _pixi_list(path) if pixi else _conda_list(path)
    if listed:
        of, direct = listed
        advice = "`pixi lock`" if pixi else f"`conda-lock -f {of}`"
        check_pins(
            path, of, advice, [conda.required(*item) for item in direct.items()], _pins(packages)
        )
        return _conda(path, packages, set(direct))
    needed = {name for package in packages for name in package.needs}
    return _conda(path, packages, {package.name for package in packages} - needed)


def _conda(path: Path, packages: Sequence[Locked], direct: set[str]) -> conda.Conda:
    taken = [entry for entry in packages if entry.name in direct or not entry.by_conda]
    own = [entry.name for entry in taken if entry.by_conda]
    brought = conda.brought_along(own, (entry.name for entry in taken))
    conda.check_python(path.name, own, brought)
    python = next((entry.version for entry in packages if entry.name == conda.PYTHON), "")
    rows = [
        entry.place or conda.required(entry.name, f"=={entry.version}")
        for entry in taken
        if entry.name not in conda.INCLUDED.union(brought)
    ]
    asked = f"=={'.'.join(python.split('.')[:2])}.*" if python else ""
    return conda.Conda(asked, tuple(rows), brought)


def _pins(packages: Sequence[Locked]) -> dict[str, set[str]]:
    pins: dict[str, set[str]] = {}
    for package in packages:
        name = canonical(conda.required(package.name, ""))
        pins.setdefault(name, set()).add("" if package.place else package.version)
    return pins


def _of_pixi(document: Mapping[str, Any]) -> Iterator[Locked]:
    known = {
        url: entry
        for entry in document["packages"]
        for url in (entry.get("conda"), entry.get("pypi"))
        if url
    }
    # Before version 6, a package names its kind and its URL.
    known |= {entry["url"]: entry for entry in document["packages"] if "url" in entry}
    for entry in document["environments"][DEFAULT]["packages"][PLATFORM]:
        by_conda = "conda" in entry
        url = entry["conda"] if by_conda else entry["pypi"]
        about = known.get(url, {})
        if by_conda:
            parts = unquote(PurePosixPath(urlsplit(url).path).name).rsplit("-", 2)
            if len(parts) < 3:  # noqa: PLR2004 - its name, version and build
                raise ValueError(f"{url} is a package that pixi builds itself")
            name, version, _ = parts
        elif "://" not in url:
            # The project itself is not installed.
            if url.strip("./"):
                yield Locked(canonical(url), "", by_conda=False, place=f"./{url}")
            continue
        else:
            name, version = about.get("name"), about.get("version")
            name = name or PurePosixPath(urlsplit(url).path).name.split("-")[0]
            version = version or PurePosixPath(urlsplit(url).path).name.split("-")[1]
        needs = [canonical(str(each).split()[0]) for each in about.get("depends", [])]
        place = "" if by_conda else _place(name, url)
        yield Locked(canonical(name), str(version), by_conda, needs, place)


def _of_conda_lock(document: Mapping[str, Any]) -> Iterator[Locked]:
    for entry in document["package"]:
        if entry["platform"] == PLATFORM and entry.get("category", "main") == "main":
            needs = [canonical(each) for each in entry.get("dependencies", {})]
            by_conda = entry["manager"] == "conda"
            place = "" if by_conda else _place(entry["name"], entry["url"])
            yield Locked(canonical(entry["name"]), str(entry["version"]), by_conda, needs, place)


def _place(name: str, url: str) -> str:
    """Return the requirement of a package that is not in the public index; "" for one that is."""
    if url.startswith(OF_PYPI):
        return ""
    bare, _, commit = url.partition("#")
    if not url.startswith("git+") or "@" in urlsplit(bare).path:
        return f"{name} @ {url}"
    bare, _, query = bare.partition("?")
    below = parse_qs(query).get("subdirectory", [""])[0]
    return f"{name} @ {bare}@{commit}{f'#subdirectory={below}' if below else ''}"


def _conda_list(path: Path) -> tuple[str, dict[str, str]] | None:
    """Return the name of the environment.yml beside a lock, and what it asks for."""
    if not path.name.startswith("conda-lock."):
        # One of several, made of a list that nobody can tell.
        return None
    beside = next((path.with_name(name) for name in LISTS if path.with_name(name).is_file()), None)
    if beside is None:
        return None
    return beside.name, conda.asked_for(beside)


def _pixi_list(path: Path) -> tuple[str, dict[str, str]] | None:
    """Return the name of the manifest of pixi beside a lock, and what it asks for."""
    beside, own = path.with_name(PIXI_LIST), path.with_name(PROJECT)
    if beside.is_file():
        manifest, of = table(beside), PIXI_LIST
    elif own.is_file() and (manifest := table(own, "tool", "pixi")):
        of = PROJECT
    else:
        return None
    linux = (
        manifest.get("target", {}).get(PLATFORM, {}),
        manifest.get("target", {}).get("linux", {}),
    )
    direct: dict[str, str] = {}
    for section in (manifest, *linux):
        for part in ("dependencies", "pypi-dependencies"):
            for name, asked in section.get(part, {}).items():
                if isinstance(asked, dict) and asked.get("path") in HERE:
                    continue
                version = asked.get("version", "*") if isinstance(asked, dict) else str(asked)
                direct[canonical(name)] = conda.parsed(f"{name} {version}", path)[1]
    direct.pop(conda.PYTHON, None)
    listed = dependencies(own) if of == PROJECT else []
    return of, {
        name_of(line): line[len(match[0]) :] for line in listed if (match := NAME.match(line))
    } | direct
