"""The folders of one attempt on the worker's disk, and their size."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import UUID

import structlog
from forge_schema.model.lease import Fence

from forge_worker.files.safe_files import BLOCK, remove_tree, weight
from forge_worker.files.short_paths import forget_path

# Files in the control folder for the job's results.
RESULT_FILE, JUNIT_FILE = "result.json", "junit.xml"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Folders:
    """The folders of an attempt; `root` contains everything, including its fencing token."""

    root: Path

    @cached_property
    def work(self) -> Path:
        return self.root / "work"

    @cached_property
    def output(self) -> Path:
        return self.root / "output"

    @cached_property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @cached_property
    def control(self) -> Path:
        return self.root / "control"

    @cached_property
    def tmp(self) -> Path:
        """The temporary files of a job that is a process."""
        return self.root / "tmp"

    @cached_property
    def staging(self) -> Path:
        return self.root / "staging"

    @cached_property
    def log(self) -> Path:
        return self.root / "log"

    @cached_property
    def places(self) -> Path:
        return self.root / "places"

    @cached_property
    def stored(self) -> Path:
        return self.root / "stored"

    @cached_property
    def foreign(self) -> Path:
        return self.root / "foreign"

    @cached_property
    def stored_artifacts(self) -> Path:
        return self.root / "stored-artifacts"

    @cached_property
    def secrets(self) -> Path:
        """A hash of the job's secrets."""
        return self.root / "secrets"

    @cached_property
    def preempt(self) -> Path:
        return self.control / "preempt"

    @cached_property
    def save(self) -> Path:
        return self.control / "checkpoint"

    @cached_property
    def metrics(self) -> Path:
        return self.control / "metrics.jsonl"

    def make(self) -> None:
        """Create the folders, and an empty log."""
        self.root.mkdir(parents=True, exist_ok=True)
        for folder in (self.work, self.output, self.checkpoint, self.control, self.tmp):
            folder.mkdir()
        self.log.touch()

    def fence(self) -> Fence | None:
        """Return the token of the attempt that owns these folders, if it can be read."""
        try:
            kept = json.loads((self.root / "lease.json").read_text(encoding="utf-8"))
            return Fence(kept["job_id"], kept["token"], UUID(kept["nonce"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def has_output(self) -> bool:
        """Return whether there may be files to store, other than the log."""
        try:
            return any(any(place.iterdir()) for place in (self.output, self.checkpoint))
        except OSError:
            return True

    def bytes_used(self) -> int:
        """Return the job's bytes on disk, without the agent's own copies."""
        places = (self.work, self.output, self.checkpoint, self.control, self.tmp)
        return sum(map(weight, places)) + self.log.stat().st_blocks * BLOCK

    def remove(self) -> None:
        """Remove everything, including what the job made unreadable."""
        forget_path(self.tmp)
        if not remove_tree(self.root):
            log.warning("folder_not_removed", folder=str(self.root))
