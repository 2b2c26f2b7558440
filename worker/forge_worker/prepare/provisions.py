"""Provisions: what a job needs besides its code. Each adds its part to the job's spec."""

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePath, PurePosixPath
from threading import Lock
from typing import Any, Protocol

from forge_schema.model.errors import ForgeError
from forge_schema.model.states import JobKind

from forge_worker.attempt import LiveAttempt
from forge_worker.attempt_folders import JUNIT_FILE, RESULT_FILE
from forge_worker.files.safe_files import Parts, opened, remove_tree, walk
from forge_worker.runners.choice import installed_handlers
from forge_worker.runners.runner import Mount, Runner, RunSpec, StartFailed

ARGUMENTS = "arguments.json"
KEPT = ("FORGE_", "PYTHONUNBUFFERED")
PLACE = PurePosixPath("/forge/python")
# If the job has the whole package installed, its other modules can be imported too.
PACKAGE = b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"
# What says that a folder is a project that can be installed; the most that is read of one.
PROJECT, SETUPS, MOST_BYTES = "pyproject.toml", ("setup.cfg", "setup.py"), 1 << 17
IMAGE_WAYS = ("image", "image_tar", "dockerfile")
# A script as setuptools reads it, and the module and the function in its value.
LISTED = re.compile(r"(?:^|[\"'])[ \t]*([\w.-]+)[ \t]*=[ \t]*([\w.]+:[\w.]+)", re.MULTILINE)
CALLED = re.compile(r"([^\W\d][\w.]*):([^\W\d][\w.]*)")
PLAIN = re.compile(r"\w[\w.-]*")
SCRIPT = """#!/usr/bin/env python3
import sys
from {module} import {first}
if __name__ == "__main__":
    sys.exit({function}())
"""

Statuses = dict[Parts, tuple[int, int]]
"""The inode of each path, and when that was last changed in any way."""


class Provision(Protocol):
    """One thing that a job may need, such as an environment for its requirements.

    It is called before every start, and returns the spec unchanged if the job does not need it.
    """

    def provide(self, spec: RunSpec, attempt: LiveAttempt, runner: Runner) -> RunSpec:
        """Prepare the thing, and return the spec that includes it.

        It may be called again after a store failure. Slow steps are announced with `attempt.note`,
        and call `attempt.while_wanted` regularly.

        Raises:
            ForgeError: it cannot be prepared; `job_run.REASONS` maps the error to a reason.
            Stopped: the attempt must stop.
        """


class ProvisionFailed(ForgeError):
    """The project's own files do not yield what it asks for: a failure of the job."""

    exit_code: int | None = None


class HandlerMissing(StartFailed):
    """The worker does not have the handler of a job any more."""

    code = StartFailed.code


def handler_start(spec: RunSpec, attempt: LiveAttempt) -> RunSpec:
    """Return the spec of a custom job: its handler in its own process.

    Raises:
        HandlerMissing: the handler is not installed here.
    """
    asked = attempt.grant.spec
    name = asked["handler"]
    if name not in installed_handlers():
        raise HandlerMissing(
            f"this worker has no handler {name!r}",
            hint="it was there at the start; restart the worker after changing its packages",
        )
    call = {"arguments": asked.get("arguments", {}), "env": asked["env"]}
    path = attempt.folders.control / ARGUMENTS
    path.write_text(json.dumps(call), encoding="utf-8")
    places = [place for place in sys.path if place]
    boot = (
        f"import sys; sys.path[:0] = {places!r}; from forge_worker.inside.handler import main; "
        "main()"
    )
    return replace(
        spec,
        command=(sys.executable, "-I", "-c", boot, name, str(path)),
        env={key: value for key, value in spec.env.items() if key.startswith(KEPT)},
        bin_dirs=(),
        python_dirs=(),
    )


class KindProvision:
    """Set the paths of the result and the test report; start a custom job's handler."""

    def provide(self, spec: RunSpec, attempt: LiveAttempt, runner: Runner) -> RunSpec:
        """Return the spec with the variables of its kind.

        Raises:
            StartFailed: the job's handler is not installed here.
        """
        asked, paths = attempt.grant.spec, runner.paths(spec)
        report = _report_path(attempt, paths.work_dir, paths.control_dir)
        env = {
            **spec.env,
            "FORGE_RESULT_FILE": str(paths.control_dir / RESULT_FILE),
            "FORGE_JUNIT_FILE": str(report),
        }
        if asked.get("kind") == JobKind.TEST:
            # First, so that the job's own options come later and win.
            more = asked["env"].get("PYTEST_ADDOPTS", "")
            env["PYTEST_ADDOPTS"] = f"--junitxml={shlex.quote(str(report))} {more}".strip()
        spec = replace(spec, env=env)
        return handler_start(spec, attempt) if asked.get("handler") else spec


def _report_path(attempt: LiveAttempt, work: PurePath, control: PurePath) -> PurePath:
    named: str | None = attempt.grant.spec.get("junit")
    if named is None:
        return control / JUNIT_FILE
    with suppress(OSError):
        # A report in the bundle is from an earlier run. No code of the job has run yet, and the
        # bundle's own links stay in the folder.
        (attempt.folders.work / named).unlink()
    return work / named


class ProjectProvision:
    """Let a job import its project and run its scripts, as if the project were installed.

    An image of the job's own may have it installed, with what was compiled of it.
    """

    def provide(self, spec: RunSpec, attempt: LiveAttempt, runner: Runner) -> RunSpec:
        """Return the spec with the project's places; raises OSError if they cannot be written."""
        asked, work = attempt.grant.spec, attempt.folders.work
        is_project = any((work / name).is_file() for name in (PROJECT, *SETUPS))
        if not is_project or any(asked.get(way) for way in IMAGE_WAYS):
            return spec
        paths, here = runner.paths(spec), PurePath("project")
        _write_project(work, attempt.folders.control / here)
        own = paths.control_dir / here
        return replace(
            spec,
            bin_dirs=(*spec.bin_dirs, own / "bin"),
            python_dirs=(*spec.python_dirs, own, *_places(work, paths.work_dir)),
        )


def _write_project(work: Path, folder: Path) -> None:
    """Write what an installation would: its scripts, and its name and version."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for name, target in scripts(work).items():
        called = CALLED.match(target)
        if called and PLAIN.fullmatch(name):
            module, function = called.groups()
            first = function.partition(".")[0]
            path = folder / "bin" / name
            path.write_text(SCRIPT.format(module=module, first=first, function=function))
            path.chmod(0o755)
    document = project_of(work)
    about = {**table(document, "tool", "poetry"), **table(document, "project")}
    name, version = str(about.get("name", "")), str(about.get("version", "0"))
    if PLAIN.fullmatch(name) and "\n" not in version:
        info = folder / f"{re.sub('[-.]+', '_', name)}-0.dist-info"
        info.mkdir(exist_ok=True)
        lines = ("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}")
        (info / "METADATA").write_text("\n".join((*lines, "")), encoding="utf-8")


def _places(work: Path, seen: PurePath) -> Iterator[PurePath]:
    """Yield the folders in which a project has its modules, as the job sees them."""
    if not _hides_python(work):
        yield seen
    own = work / "src"
    if own.is_dir() and not _is_package(own) and not _hides_python(own):
        yield seen / "src"


def _hides_python(folder: Path) -> bool:
    """Tell whether a folder has a module named as one of Python's, which comes after it."""
    names = {each.stem for each in folder.iterdir() if each.suffix == ".py" or _is_package(each)}
    return not names.isdisjoint(sys.stdlib_module_names)


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def scripts(work: Path) -> dict[str, str]:
    """Return the scripts of the project in a job's folder: their modules and functions."""
    listed = ""
    for name in SETUPS:
        listed += _text(work, name).partition("console_scripts")[2]
    document = project_of(work)
    named = {
        **table(document, "tool", "poetry", "scripts"),
        **table(document, "project", "scripts"),
    }
    return dict(LISTED.findall(listed)) | {
        name: target for name, target in named.items() if isinstance(target, str)
    }


def project_of(work: Path) -> dict[str, Any]:
    """Return the job's pyproject.toml, which the job may have changed; {} if it cannot be read."""
    try:
        return tomllib.loads(_text(work, PROJECT))
    except (ValueError, RecursionError):
        return {}


def table(document: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return a table, or {} if there is none: the job may have written anything there."""
    found: Any = document
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _text(work: Path, name: str) -> str:
    try:
        with opened(work, name) as file:
            return file.read(MOST_BYTES).decode()
    except (OSError, ValueError):
        return ""


class JobModuleProvision:
    """Give each job a read-only folder that contains only these modules."""

    def __init__(self, root: Path) -> None:
        self._root = self._made = root
        self._making = Lock()
        # Of what is in the folder since it was last compared with the modules.
        self._statuses: Statuses = {}

    def provide(self, spec: RunSpec, attempt: LiveAttempt, runner: Runner) -> RunSpec:  # noqa: ARG002  the same for every job
        """Return the spec with the module; raises OSError if it cannot be written."""
        mount = Mount(self._folder(), PLACE)
        return replace(
            spec, mounts=(*spec.mounts, mount), python_dirs=(*spec.python_dirs, runner.place(mount))
        )

    def _folder(self) -> Path:
        """Return the folder, named by its content so that jobs of the agent before keep theirs."""
        with self._making:
            # A job's process that runs as root may have changed it.
            if not self._statuses or _statuses(self._made) != self._statuses:
                files = _files()
                self._made = self._root / _digest(files)[:16]
                statuses = _statuses(self._made)
                if not _holds(self._made / "forge_worker", files):
                    remove_tree(self._made)
                    self._make(self._made, files)
                    statuses = _statuses(self._made)
                self._statuses = statuses
            return self._made

    def _make(self, folder: Path, files: Mapping[str, bytes]) -> None:
        new = self._root / ".new"
        remove_tree(new)
        package = new / "forge_worker"
        for name, content in files.items():
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_bytes(content)
            (package / name).chmod(0o444)
        # Their folders stay writable: a user's `rm -r` of a worker's folder would stop there.
        for place in {new, *((package / name).parent for name in files)}:
            place.chmod(0o755)
        new.rename(folder)


def _files() -> dict[str, bytes]:
    ours = Path(__file__).parents[1]
    modules = [ours / "job.py", *(ours / "integrations").glob("*.py")]
    files = {str(path.relative_to(ours)): path.read_bytes() for path in modules}
    return {**files, "__init__.py": PACKAGE}


def _digest(files: Mapping[str, bytes]) -> str:
    named = "\0".join(f"{name}\0{sha256(files[name]).hexdigest()}" for name in sorted(files))
    return sha256(named.encode()).hexdigest()


def _statuses(folder: Path) -> Statuses:
    return {parts: (status.st_ino, status.st_ctime_ns) for parts, status in walk(folder)}


def _holds(package: Path, files: Mapping[str, bytes]) -> bool:
    try:
        return all((package / name).read_bytes() == content for name, content in files.items())
    except OSError:
        return False
