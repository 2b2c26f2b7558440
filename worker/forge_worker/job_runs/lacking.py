"""What a job that could not import something lacks, and how to give it that."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from forge_worker.files.safe_files import opened

MODULE = re.compile(
    r"(?:\S*python\S*: Error while finding module specification for .* \()?"
    r"(?:ModuleNotFoundError|\S*python\S*): No module named '?(\w+)"
)
# In the words of a worker, of Docker, and of shells.
PROGRAM = re.compile(
    r"(?:exec: |.*\bexec: )?\"?([\w.+-]+)\"?: (?:not found$|executable file not found)"
    r"|\S*sh: (?:line )?(?:\d+: )?([\w.+-]+): (?:command )?not found$"
    r"|.*exec: \"([\w.+-]+)\": executable file not found"
)
# They run a command in an environment that they make; the job has one already.
RUN = ("uv", "poetry", "pdm", "pipenv", "hatch", "pixi")
PROJECT, MOST_BYTES = "pyproject.toml", 1 << 17
LIBRARY = re.compile(r"ImportError: (lib[^\s:]+\.so[^\s:]*): cannot open shared object file")
# Modules whose package has another name.
PACKAGES = {
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "git": "gitpython",
    "jwt": "pyjwt",
    "OpenSSL": "pyopenssl",
    "pkg_resources": "setuptools",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
ADDING = {"uv.lock": "`uv add {}`", "poetry.lock": "`poetry add {}`"}


def lacks(error: str, spec: Mapping[str, Any], work: Path) -> str | None:
    """Return what a job lacks and what to do, from the last line of its traceback.

    Args:
        error: the line.
        spec: the job's.
        work: its folder.
    """
    # Before it may stand how the job was killed, or which rank failed.
    error = error.rpartition("; last output: ")[2]
    if library := LIBRARY.match(error):
        return f"the job has no {library[1]}: use an image that has it (--image)"
    if program := PROGRAM.match(error):
        return _no_program(next(filter(None, program.groups())), work)
    match = MODULE.match(error)
    module = match[1] if match else ""
    if not module or _exists(work, module):
        return None
    if _exists(work / "src", module):
        return f"{module} is in the project's folder src: submit with --env PYTHONPATH=src"
    return _not_installed(PACKAGES.get(module, module), spec, work)


def _exists(folder: Path, module: str) -> bool:
    return (folder / module).is_dir() or (folder / f"{module}.py").is_file()


def _not_installed(package: str, spec: Mapping[str, Any], work: Path) -> str:
    listed = spec.get("requirements")
    source = (spec.get("environment") or {}).get("source") or listed
    if not source:
        has = "the image" if spec.get("image") else "the worker's Python"
        return f"{package} is not in {has}: name it in a requirements.txt and submit again"
    if source.startswith("the active"):
        return f"{package} is not in {source}: install it there and submit again"
    if part := _part_with(package, work):
        kind, name = part
        return f"{package} is in the {kind} {name} of the project: submit with --{kind} {name}"
    how = ADDING.get(PurePosixPath(source).name, "add it there").format(package)
    return f"{package} is not in {source}: {how} and submit again"


def _part_with(package: str, work: Path) -> tuple[str, str] | None:
    """Return the extra or group of the project that a package is in: its kind and its name."""
    said = _project(work)
    parts = (("extra", ("project", "optional-dependencies")), ("group", ("dependency-groups",)))
    for kind, keys in parts:
        for name, lines in _table(said, *keys).items():
            listed = lines if isinstance(lines, list) else []
            if any(_named(str(line)) == _named(package) for line in listed):
                return kind, name
    return None


def _named(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def _no_program(name: str, work: Path) -> str | None:
    """Return what to do about a program that is not there; None if nobody knows."""
    if name in RUN:
        return f"{name} is not there, and its packages are: submit the command without `{name} run`"
    said = _project(work)
    tables = _table(said, "tool", "poetry", "scripts"), _table(said, "project", "scripts")
    module = {**tables[0], **tables[1]}.get(name)
    if not isinstance(module, str):
        return None
    return (
        f"{name} is a script of the project, which is not installed itself:"
        f" run `python -m {module.partition(':')[0]}`"
    )


def _project(work: Path) -> dict[str, Any]:
    """Return the job's pyproject.toml, which the job may have changed; {} if it cannot be read."""
    try:
        with opened(work, PROJECT) as file:
            return tomllib.loads(file.read(MOST_BYTES).decode())
    except (OSError, ValueError, RecursionError):
        return {}


def _table(said: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return a table, or {} if there is none: the job may have written anything there."""
    found: Any = said
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}
