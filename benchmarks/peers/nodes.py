"""The peers from npm: pinned by package-lock.json, in a folder that is gone at the end."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.zombie.environment import CannotInstall

HERE = Path(__file__).parent


@contextmanager
def node_environment() -> Iterator[Path]:
    """Make it and lend its folder, with the programs in it.

    Raises:
        CannotInstall: Node is missing, or a package is not to be had.
    """
    if shutil.which("npm") is None:
        raise CannotInstall("there is no npm here; install Node 20")
    with TemporaryDirectory(prefix="forge-peers-node-") as name:
        folder = Path(name)
        for file in [*HERE.glob("package*.json"), *HERE.glob("*.mjs")]:
            shutil.copy(file, folder)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotInstall(done.stderr.strip())
        yield folder


def node_version(folder: Path, package: str) -> str:
    """Return the version of a package in that folder."""
    about = folder / "node_modules" / package / "package.json"
    return str(json.loads(about.read_text(encoding="utf-8"))["version"])
