"""Choose the pip that installs a project's requirements, and the authorities that it trusts."""

import re
import shutil
import sysconfig
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import certifi
from forge_schema.model.errors import ForgeError

from forge_worker.runners.runner import Mount

PLACE = PurePosixPath("/forge/pip")
RUNNER = "__pip-runner__.py"
AUTHORITIES = "_vendor/certifi/core.py"
# The pip of a distribution names a file of that distribution, and ends if an image has none.
OF_A_DISTRIBUTION = re.compile(r"""["']/""")
BESIDE = '''\
"""The authorities are beside this file."""

from pathlib import Path


def where():
    return str(Path(__file__).with_name("cacert.pem"))


def contents():
    return Path(where()).read_text(encoding="ascii")
'''


class PipMissing(ForgeError):
    """The worker's Python has no pip, so it cannot install anything."""


def pip_program(room: Path, *, same_python: bool) -> tuple[Mount, str]:
    """Return the folder with pip, and the file in it for Python to run.

    The worker's own pip is compiled for the `same_python`, and starts in a third of the time. The
    bundled wheel runs on older versions too; if it needs files of this machine, the folder `room`
    gets a copy that needs none.

    Raises:
        PipMissing: there is no pip.
    """
    candidates = [_installed(), _bundled()]
    for candidate in candidates if same_python else reversed(candidates):
        if candidate:
            folder, program = candidate
            if not same_python and OF_A_DISTRIBUTION.search(_authorities(folder, program)):
                folder, program = _independent(folder, program, room), "pip"
            return Mount(folder, PLACE), program
    raise PipMissing(
        "this worker's Python has no pip", hint="install pip or ensurepip for it there"
    )


def _installed() -> tuple[Path, str] | None:
    spec = find_spec("pip")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    # pip's own way into another environment: it imports nothing else from this folder's neighbours.
    return (folder, RUNNER) if folder and (folder / RUNNER).is_file() else None


def _bundled() -> tuple[Path, str] | None:
    # Debian has it in a package of its own.
    spec = find_spec("ensurepip")
    beside = Path(spec.origin).parent / "_bundled" if spec and spec.origin else None
    for folder in (beside, _wheels()):
        if folder and (wheels := sorted(folder.glob("pip-*.whl"))):
            return folder, f"{wheels[-1].name}/pip"
    return None


def _wheels() -> Path | None:
    folder = sysconfig.get_config_var("WHEEL_PKG_DIR")
    return Path(folder) if folder else None


def _authorities(folder: Path, program: str) -> str:
    if program == RUNNER:
        return (folder / AUTHORITIES).read_text(encoding="utf-8")
    with ZipFile(folder / Path(program).parent) as wheel:
        return wheel.read(f"pip/{AUTHORITIES}").decode()


def _independent(folder: Path, program: str, room: Path) -> Path:
    """Copy pip to the room, with authorities of its own: what it starts has them too."""
    root = room / "pip"
    if program == RUNNER:
        shutil.copytree(folder, root / "pip")
    else:
        with ZipFile(folder / Path(program).parent) as wheel:
            wheel.extractall(root, [name for name in wheel.namelist() if name.startswith("pip/")])
    core = root / "pip" / AUTHORITIES
    core.write_text(BESIDE, encoding="utf-8")
    shutil.copyfile(certifi.where(), core.with_name("cacert.pem"))
    return root
