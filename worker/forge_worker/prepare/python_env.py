"""Environments of a project's requirements: made once for each content, and kept for the next job.

An environment is one owner's: what gets into it depends on that owner's variables and secrets too.
"""

import hashlib
import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path, PurePosixPath

from forge_schema.model.errors import ForgeError

from forge_worker.attempt.attempt import Attempt
from forge_worker.files.atomic import write_atomically
from forge_worker.files.safe_files import remove_tree, walk
from forge_worker.prepare.cache import LruFolders
from forge_worker.prepare.pip_install import install
from forge_worker.prepare.requirements import Requirements, read
from forge_worker.runners.runner import Mount, Runner, RunSpec

FILE = "complete"
# Python writes these itself, whenever it likes.
COMPILED = "__pycache__"

Sizes = dict[str, int]
"""Relative path to size; of a link, its own."""
ENV = PurePosixPath("/forge/env")
# To be changed with the way in which environments are made.
RECIPE = 2


def write_inventory(folder: Path, env: Path) -> None:
    """Write down what the environment holds, which also says that it is complete.

    Raises:
        OSError: the disk is full or faulty.
    """
    write_atomically(folder / FILE, json.dumps(_sizes(env)), durable=True)


def inventory_damage(folder: Path, env: Path) -> str | None:
    """Return what is wrong with an environment; None where it is as it was made.

    Raises:
        FileNotFoundError: it was never complete.
    """
    try:
        made = json.loads((folder / FILE).read_bytes())
        found = _sizes(env)
        wrong = [path for path, size in made.items() if found.get(path) != size]
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
    """The worker does not let projects install what they require."""

    code = "install_refused"


class EnvironmentProvision:
    """Give a job whose project names its requirements an environment that has them."""

    def __init__(self, folders: LruFolders, *, allowed: bool, host_packages: bool) -> None:
        self._folders = folders
        self._allowed = allowed
        self._host_packages = host_packages

    def provide(self, spec: RunSpec, attempt: Attempt, runner: Runner) -> RunSpec:
        """Return the start with the environment, made now if there is none yet.

        Raises:
            InstallRefused: the operator does not want it.
            ProvisionFailed: the requirements cannot be read, or not be installed.
            StartFailed: this machine could not run the installation.
            Stopped: the attempt must stop.
        """
        path = attempt.grant.spec.get("requirements")
        # An installation runs what the job brought, and a handler runs where that may not.
        if not path or attempt.grant.spec.get("handler"):
            return spec
        if not self._allowed:
            raise InstallRefused(
                f"this worker installs nothing, and the job wants what {path} requires",
                hint="submit with --no-install and an image that has it, or let the worker install",
            )
        wanted = read(attempt.folders.work, path, attempt.while_wanted)
        # In a container, what lies outside of the environment came with the job's own image.
        open_to_host = runner.kind != "process" or self._host_packages
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
            env={**spec.env, "VIRTUAL_ENV": str(place)},
        )

    def _sound(self, key: str, attempt: Attempt, fill: Callable[[Mount], None]) -> Mount:
        """Return an environment that is as it was made, made now if there is none."""
        for number in count():
            name = f"{key}-{number}" if number else key
            with self._folders.locked(name, attempt.while_wanted) as folder:
                env = Mount(folder / "env", ENV)
                wrong = _wrong(folder, env, attempt)
                # Whoever uses a damaged one goes on with what is left of it.
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


def _wrong(folder: Path, env: Mount, attempt: Attempt) -> bool:
    """Tell whether an environment must be made, and say so in the job's log if it is damaged."""
    try:
        damage = inventory_damage(folder, env.source)
    except FileNotFoundError:
        return True
    if damage:
        attempt.note(f"the cached environment is damaged ({damage}); it is made anew")
    return damage is not None


def _make(folder: Path, fill: Callable[[], None]) -> None:
    """Make a folder anew; it counts only once it is complete."""
    remove_tree(folder)
    (folder / "env").mkdir(parents=True)
    try:
        fill()
    except BaseException:
        remove_tree(folder)
        raise
    # After a power cut, what is said to be complete must be on the disk.
    os.sync()
    write_inventory(folder, folder / "env")


def _key(
    wanted: Requirements, spec: RunSpec, owner: str, runner: Runner, *, open_to_host: bool
) -> str:
    pip = sorted((name, said) for name, said in spec.env.items() if name.startswith("PIP_"))
    content = [RECIPE, wanted.digest, runner.foundation(spec), owner, pip, open_to_host]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
