"""The peers' own Python: pinned by requirements.txt, in a folder that is gone at the end."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
VERSIONS = """
import sys
from importlib.metadata import version
print(", ".join(f"{name} {version(name)}" for name in sys.argv[1:]))
"""


class CannotInstall(Exception):
    """The peers could not be installed."""


@contextmanager
def environment() -> Iterator[Path]:
    """Make it and lend its Python.

    Raises:
        CannotInstall: a package is not to be had.
    """
    with TemporaryDirectory(prefix="forge-zombie-") as folder:
        python = Path(folder) / "bin" / "python"
        make = [sys.executable, "-m", "venv", folder]
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for command in (make, [*install, "--require-hashes", "-r", str(REQUIREMENTS)]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise CannotInstall(done.stderr.strip() or done.stdout.strip())
        yield python


def versions(python: Path, packages: tuple[str, ...]) -> str:
    """Return the packages with their versions in that environment."""
    command = [str(python), "-c", VERSIONS, *packages]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
