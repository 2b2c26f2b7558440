"""Python environments for requirements: built once per content, and cached for later jobs.

An environment belongs to one owner, because its content also depends on the owner's variables and
secrets.
"""

import hashlib
import json
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path, PurePosixPath

from forge_schema.model.errors import ForgeError

from forge_worker.attempt import LiveAttempt
from forge_worker.files.safe_files import remove_tree, walk
from forge_worker.files.small_files import write_atomically
from forge_worker.prepare.cache import LruFolders
from forge_worker.prepare.pip_install import install
from forge_worker.prepare.requirements import Requirements, read
from forge_worker.runners.runner import Mount, Runner, RunSpec

FILE = "complete"
# Python writes these at any time.
COMPILED = "__pycache__"

Sizes = dict[str, int]
"""Relative path to size in bytes; a link has its own size."""
ENV = PurePosixPath("/forge/env")
# Lists of a project from which uv would make its environment.
OF_UV = frozenset({"uv.lock", "pyproject.toml"})
# Increment this if environments are built differently.
RECIPE = 4


def write_inventory(folder: Path, env: Path) -> None:
    """Write the environment's list of files, which also marks it as complete.

    Raises:
        OSError: the disk is full or faulty.
    """
    write_atomically(folder / FILE, json.dumps(_sizes(env)), durable=True)


def inventory_damage(folder: Path, env: Path) -> str | None:
    """Return what is wrong with an environment, or None if it is unchanged.

    Raises:
        FileNotFoundError: it was never complete.
    """
    try:
        made = json.loads((folder / FILE).read_bytes())
        sizes = _sizes(env)
        wrong = [path for path, size in made.items() if sizes.get(path) != size]
    except (ValueError, AttributeError):
        return "its list of files cannot be read"
    if not wrong:
        return None
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"missing or changed: {min(wrong)!r}{more}"


def _sizes(env: Path) -> Sizes:
    return {
        "/".join(parts): status.st_size
        for parts, status in walk(env)
        if not stat.S_ISDIR(status.st_mode) and COMPILED not in parts
    }


class InstallRefused(ForgeError):
    """The worker does not allow projects to install requirements."""


class EnvironmentProvision:
    """Give a job an environment with its project's requirements, if it has any."""

    def __init__(self, folders: LruFolders, *, allowed: bool, host_packages: bool) -> None:
        self._folders = folders
        self._allowed = allowed
        self._host_packages = host_packages

    def provide(self, spec: RunSpec, attempt: LiveAttempt, runner: Runner) -> RunSpec:
        """Return the spec with the environment, which is built if necessary.

        Raises:
            InstallRefused: the operator does not allow it.
            ProvisionFailed: the requirements cannot be read or installed.
            StartFailed: this machine could not run the installation.
            Stopped: the attempt must stop.
        """
        path = attempt.grant.spec.get("requirements")
        # An installation runs the job's code, which must not run on a handler's worker.
        if not path or attempt.grant.spec.get("handler"):
            return spec
        if not self._allowed:
            raise InstallRefused(
                f"the job needs the requirements in {path}, but this worker does not install any",
                hint="submit with --no-install and an image that has them, or allow installations",
            )
        wanted = read(attempt.folders.work, path, attempt.while_wanted)
        if runner.on_host and wanted.names_no_package and _here(wanted):
            # What the machine has is what such a project asks for.
            return spec
        # In a container, the packages outside the environment belong to the job's own image.
        open_to_host = not runner.on_host or self._host_packages
        fill = partial(
            install, wanted, spec=spec, attempt=attempt, runner=runner, open_to_host=open_to_host
        )
        key = _key(wanted, spec, attempt.grant.owner, runner, open_to_host=open_to_host)
        env = self._sound(key, attempt, fill)
        place = runner.place(env)
        return replace(
            spec,
            mounts=(*spec.mounts, env),
            bin_dirs=(place / "bin", *spec.bin_dirs),
            env={**_for_uv(attempt, str(place)), **spec.env, "VIRTUAL_ENV": str(place)},
        )

    def _sound(self, key: str, attempt: LiveAttempt, fill: Callable[[Mount], None]) -> Mount:
        """Return an undamaged environment, building it if necessary."""
        for number in count():
            name = f"{key}-{number}" if number else key
            with self._folders.locked(name, attempt.while_wanted) as folder:
                env = Mount(folder / "env", ENV)
                wrong = _wrong(folder, env, attempt)
                # Jobs that use a damaged one keep what is left of it.
                if wrong and self._folders.in_use(name):
                    continue
                if wrong:
                    with attempt.weighed(folder):
                        _make(folder, partial(fill, env))
                self._folders.mark_used(name, attempt.folders)
            if wrong:
                self._folders.make_room()
            return env
        raise AssertionError("unreachable")


def _for_uv(attempt: LiveAttempt, place: str) -> dict[str, str]:
    """Return what makes `uv run` use an environment that is of the project, and make no other."""
    shown = attempt.grant.spec.get("environment") or {}
    source = PurePosixPath(shown.get("source") or attempt.grant.spec["requirements"])
    if source.name not in OF_UV:
        return {}
    return {"UV_PROJECT_ENVIRONMENT": place, "UV_NO_SYNC": "1"}


def _here(wanted: Requirements) -> bool:
    """Tell whether the worker's own Python is one that a list asks for."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    return own in wanted.python.partition(" (")[0].split()


def _wrong(folder: Path, env: Mount, attempt: LiveAttempt) -> bool:
    """Return whether an environment must be built; damage is noted in the job's log."""
    try:
        damage = inventory_damage(folder, env.source)
    except FileNotFoundError:
        return True
    if damage:
        attempt.note(f"the cached environment is damaged ({damage}); rebuilding it")
    return damage is not None


def _make(folder: Path, fill: Callable[[], None]) -> None:
    """Rebuild a folder; it is valid only once it is complete."""
    remove_tree(folder)
    (folder / "env").mkdir(parents=True)
    try:
        fill()
    except BaseException:
        remove_tree(folder)
        raise
    # The files must be on disk before the list marks them as complete.
    os.sync()
    write_inventory(folder, folder / "env")


def _key(
    wanted: Requirements, spec: RunSpec, owner: str, runner: Runner, *, open_to_host: bool
) -> str:
    variables = sorted(item for item in spec.env.items() if item[0].startswith(("PIP_", "UV_")))
    content = [RECIPE, wanted.digest, runner.foundation(spec), owner, variables, open_to_host]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
