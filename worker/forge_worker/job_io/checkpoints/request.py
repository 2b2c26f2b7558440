"""The job's own wish for a checkpoint: it touches a file, and the folder is stored at once."""

from forge_worker.files.safe_files import status_of
from forge_worker.job_runs.attempt import Attempt
from forge_worker.loop import Loop

PERIOD_S = 0.5


class CheckpointCall(Loop):
    """Wakes the sync when the file was touched; once more when it was touched meanwhile."""

    name = "checkpoint call"

    def __init__(self, attempt: Attempt, sync: Loop) -> None:
        super().__init__(PERIOD_S)
        self._file = attempt.folders.save
        self._sync = sync
        self._seen: tuple[int, int] | None = None

    def step(self) -> None:
        found = status_of(self._file.parent, (self._file.name,))
        touched = None if found is None else (found.st_mtime_ns, found.st_ino)
        if touched not in {None, self._seen}:
            self._sync.wake()
        self._seen = touched
