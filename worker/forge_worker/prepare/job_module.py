"""Add `forge_worker.job` and `integrations`, a few files, to the end of each job's PYTHONPATH."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from threading import Lock

from forge_worker.attempt.attempt import Attempt
from forge_worker.files.safe_files import remove_tree
from forge_worker.runners.runner import Mount, Runner, RunSpec

PLACE = PurePosixPath("/forge/python")
# If the job has the whole package installed, its other modules can be imported too.
PACKAGE = b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"


class JobModuleProvision:
    """Give each job a read-only folder that contains only these modules."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._making = Lock()

    def provide(self, spec: RunSpec, attempt: Attempt, runner: Runner) -> RunSpec:  # noqa: ARG002  the same for every job
        """Return the spec with the module; raises OSError if it cannot be written."""
        mount = Mount(self._folder(), PLACE)
        return replace(
            spec,
            mounts=(*spec.mounts, mount),
            python_dirs=(*spec.python_dirs, runner.place(mount)),
        )

    def _folder(self) -> Path:
        """Return the folder, named by its content so that jobs of an older worker keep theirs."""
        ours = Path(__file__).parents[1]
        modules = [ours / "job.py", *sorted((ours / "integrations").glob("*.py"))]
        files = {str(path.relative_to(ours)): path.read_bytes() for path in modules}
        files["__init__.py"] = PACKAGE
        named = "\0".join(f"{name}\0{sha256(files[name]).hexdigest()}" for name in sorted(files))
        folder = self._root / sha256(named.encode()).hexdigest()[:16]
        with self._making:
            # A job's process that runs as root may have changed it.
            if not _holds(folder / "forge_worker", files):
                remove_tree(folder)
                self._make(folder, files)
        return folder

    def _make(self, folder: Path, files: Mapping[str, bytes]) -> None:
        new = self._root / ".new"
        remove_tree(new)
        package = new / "forge_worker"
        for name, content in files.items():
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_bytes(content)
            (package / name).chmod(0o444)
        for place in {(package / name).parent for name in files}:
            place.chmod(0o555)
        new.chmod(0o755)
        new.rename(folder)


def _holds(package: Path, files: Mapping[str, bytes]) -> bool:
    try:
        return all((package / name).read_bytes() == content for name, content in files.items())
    except OSError:
        return False
