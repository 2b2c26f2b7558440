"""Where the worker's own pip is: images need none, as any Python can run it from there."""

import ensurepip
import sysconfig
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from forge_schema.model.errors import ForgeError

from forge_worker.runners.runner import Mount

PLACE = PurePosixPath("/forge/pip")


class PipMissing(ForgeError):
    """The worker's Python has no pip, so it can install nothing."""

    code = "pip_missing"


def pip_program() -> tuple[Mount, str]:
    """Return the folder that has pip, and what in it Python is to run, "" for the folder itself.

    Raises:
        PipMissing: there is none.
    """
    # Before an installed one: it is a single file, and runs on older versions of Python too.
    for folder in (Path(ensurepip.__file__).parent / "_bundled", _wheels()):
        if folder and (wheels := sorted(folder.glob("pip-*.whl"))):
            return Mount(folder, PLACE), f"{wheels[-1].name}/pip"
    found = find_spec("pip")
    if found is None or found.origin is None:
        raise PipMissing(
            "this worker's Python has no pip", hint="install pip or ensurepip for it there"
        )
    return Mount(Path(found.origin).parent, PLACE), ""


def _wheels() -> Path | None:
    folder = sysconfig.get_config_var("WHEEL_PKG_DIR")
    return Path(folder) if folder else None
