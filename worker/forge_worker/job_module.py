"""The module `forge_worker.job` for every job: one file, at the end of its PYTHONPATH."""

import hashlib
import secrets
from dataclasses import replace
from pathlib import Path, PurePosixPath

from forge_worker.attempt import Attempt
from forge_worker.removal import remove_tree
from forge_worker.runners.runner import Mount, Runner, RunSpec

PLACE = PurePosixPath("/forge/python")
# Where the job has the whole package installed, all of that can be imported as well.
PACKAGE = "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"


class JobModuleProvision:
    """Gives each job a folder, which it cannot write to, that has the module and nothing else."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def provide(self, spec: RunSpec, attempt: Attempt, runner: Runner) -> RunSpec:  # noqa: ARG002  the same for every job
        """Return the start with the module; raises OSError when it cannot be written."""
        mount = Mount(self._folder(), PLACE)
        return replace(
            spec,
            mounts=(*spec.mounts, mount),
            python_dirs=(*spec.python_dirs, runner.place(mount)),
        )

    def _folder(self) -> Path:
        """Return the folder, by its content: a job that an older worker started keeps its own."""
        module = Path(__file__).with_name("job.py").read_bytes()
        digest = hashlib.sha256(module + PACKAGE.encode()).hexdigest()[:16]
        folder = self._root / digest
        if not folder.is_dir():
            self._make(folder, module)
        return folder

    def _make(self, folder: Path, module: bytes) -> None:
        new = self._root / f".{secrets.token_hex(8)}"
        package = new / "forge_worker"
        package.mkdir(parents=True)
        for name, content in {"__init__.py": PACKAGE.encode(), "job.py": module}.items():
            (package / name).write_bytes(content)
            (package / name).chmod(0o444)
        package.chmod(0o555)
        new.chmod(0o755)
        try:
            new.rename(folder)
        except OSError:
            # Another job of this worker was first.
            remove_tree(new)
            if not folder.is_dir():
                raise
