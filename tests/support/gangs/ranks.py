"""The members of a run without agents: each has a lease, its folders, and stores checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from forge_schema.model.lease import End
from forge_schema.model.states import Reason
from forge_worker.job_io.checkpoints import CheckpointSync
from forge_worker.queue.gateway import SqlGateway
from support.gangs.runs import Run, formed, gang
from support.workers.attempts import CountingStore, attempt_of, some_grant

if TYPE_CHECKING:
    from pathlib import Path

    from forge_worker.attempt import LiveAttempt
    from support.queue.rig import Rig

LIMIT_MB = 10


@dataclass
class Rank:
    """One member of a run."""

    attempt: LiveAttempt
    sync: CheckpointSync

    def write(self, **files: str) -> None:
        """Write files into the checkpoint folder as a careful job does: elsewhere, then renamed."""
        for name, content in files.items():
            new = self.attempt.folders.control / name
            new.write_text(content)
            new.rename(self.attempt.folders.checkpoint / name)

    def store(self, **files: str) -> None:
        """Write files, and store what there is to store."""
        self.write(**files)
        self.sync.step()

    def commit(self, step: object) -> None:
        """Commit a step as a shell does."""
        self.attempt.folders.save.write_text(f"{step}\n")

    def end(self) -> None:
        """Store the last checkpoint of a program that has ended."""
        self.sync.program.over = True
        self.sync.step()

    @property
    def files(self) -> dict[str, str]:
        """What its checkpoint folder holds."""
        folder = self.attempt.folders.checkpoint
        found = (path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


class Ranks:
    """A job on several machines, whose runs follow each other on a store of the test's own."""

    def __init__(self, rig: Rig, root: Path) -> None:
        self.rig = rig
        self.root = root
        (root / "store").mkdir(exist_ok=True)
        self.store = CountingStore(root / "store")
        self.gateway = SqlGateway(rig.database, name="w", ttl=rig.queue.ttl, store=self.store)
        self.run: Run | None = None

    def begin(self, nodes: int, *, job: int | None = None, restored: bool = True) -> list[Rank]:
        """Form the next run of the job, or the first one, and restore every rank."""
        if job is None:
            job = gang(self.rig, 2, max_nodes=8) if self.run is None else self._ready()
        workers = [self.rig.worker(f"m{rank}") for rank in range(nodes)]
        self.run = formed(self.rig, job, workers)
        ranks = [self.rank(rank) for rank in range(nodes)]
        for one in ranks:
            self.rig.queue.gather(one.attempt.fence, 1, {})
            if restored:
                one.sync.restore()
        return ranks

    def rank(self, rank: int) -> Rank:
        """Return a member as an agent has it that starts now."""
        assert self.run is not None
        fence = self.run.fences[rank]
        row = self.rig.row("SELECT attempt, nodes FROM lease WHERE token = %s", fence.token)
        grant = replace(some_grant(fence.job_id, fence.token), nonce=fence.nonce, rank=rank, **row)
        attempt = attempt_of(grant, self.root / fence.mark)
        return self.again(attempt)

    def again(self, attempt: LiveAttempt) -> Rank:
        """Return a member as the agent that adopts it has it."""
        return Rank(attempt, CheckpointSync(attempt, self.store, self.gateway, LIMIT_MB))

    def _ready(self) -> int:
        assert self.run is not None
        fences = self.run.fences
        self.rig.queue.finish([End(fences[0], Reason.PREEMPTED)])
        for fence in fences[1:]:
            self.rig.queue.finish([End(fence, Reason.RUN_ENDED)])
        assert self.rig.places(self.run.job_id) == ["ready"]
        return self.run.job_id

    @property
    def names(self) -> list[str]:
        """The complete checkpoints, the newest first."""
        assert self.run is not None
        rows = self.rig.jobs.checkpoints(self.run.job_id)
        return [f"{row['attempt']}.{row['number']}" for row in rows]
