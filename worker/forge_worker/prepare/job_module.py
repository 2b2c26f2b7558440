"""Add `forge_worker.job` and `integrations`, a few files, to the end of each job's PYTHONPATH."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from threading import Lock

from forge_worker.attempt.attempt import LiveAttempt
from forge_worker.files.safe_files import Parts, remove_tree, walk
from forge_worker.runners.runner import Mount, Runner, RunSpec

PLACE = PurePosixPath("/forge/python")
# If the job has the whole package installed, its other modules can be imported too.
PACKAGE = b"__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"

Statuses = dict[Parts, tuple[int, int]]
"""The inode of each path, and when that was last changed in any way."""


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
            spec,
            mounts=(*spec.mounts, mount),
            python_dirs=(*spec.python_dirs, runner.place(mount)),
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
