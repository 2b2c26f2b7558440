"""The folders of one attempt on the worker's disk, and what they weigh."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import UUID

import structlog
from forge_schema.model.lease import Fence

from forge_worker.files.safe_files import BLOCK, remove_tree, weight

# In the control folder, where a job leaves what it found out.
RESULT_FILE, JUNIT_FILE = "result.json", "junit.xml"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Folders:
    """`root` holds everything that an attempt has on this machine, its fencing token too."""

    root: Path

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def control(self) -> Path:
        return self.root / "control"

    @property
    def staging(self) -> Path:
        return self.root / "staging"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def places(self) -> Path:
        return self.root / "places"

    @property
    def preempt(self) -> Path:
        return self.control / "preempt"

    @property
    def save(self) -> Path:
        return self.control / "checkpoint"

    @property
    def metrics(self) -> Path:
        return self.control / "metrics.jsonl"

    def make(self, fence: Fence) -> None:
        """Make the folders, and leave the token for a later agent to find."""
        for folder in (self.work, self.output, self.checkpoint, self.control, self.staging):
            folder.mkdir(parents=True)
        kept = {**asdict(fence), "nonce": str(fence.nonce)}
        (self.root / "lease.json").write_text(json.dumps(kept), encoding="utf-8")
        self.log.touch()

    def fence(self) -> Fence | None:
        """Return the token of the attempt that these folders belonged to, if it can be read."""
        try:
            kept = json.loads((self.root / "lease.json").read_text(encoding="utf-8"))
            return Fence(kept["job_id"], kept["token"], UUID(kept["nonce"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def bytes_used(self) -> int:
        """Return the bytes on disk of what is the job's: not the agent's own copies."""
        places = (self.work, self.output, self.checkpoint, self.control)
        return sum(map(weight, places)) + self.log.stat().st_blocks * BLOCK

    def remove(self) -> None:
        """Remove everything, also what the job made unreadable."""
        if not remove_tree(self.root):
            log.warning("folder_not_removed", folder=str(self.root))
