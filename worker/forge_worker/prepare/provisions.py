"""Provisions: what a job needs besides its code. Each adds its part to the job's spec."""

import json
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePath, PurePosixPath
from threading import Lock
from typing import Protocol

from forge_schema.model.errors import ForgeError
from forge_schema.model.states import JobKind

from forge_worker.attempt import LiveAttempt
from forge_worker.attempt_folders import JUNIT_FILE, RESULT_FILE
from forge_worker.files.safe_files import Parts, remove_tree, walk
from forge_worker.runners.choice import installed_handlers
from forge_worker.runners.runner import Mount, Runner, RunSpec, StartFailed

ARGUMENTS = "arguments.json"
KEPT = ("FORGE_", "PYTHONUNBUFFERED")
PLACE = PurePosixPath("/forge/python")
# If the job has the whole package installed, its other modules can be imported too.
PACKAGE = b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"

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
