"""The index rows of stored objects, written only by a lease's holder."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime

from psycopg.types.json import Jsonb

from forge_schema.database.pool import Database, Row
from forge_schema.model.attempt_records import (
    Artifact,
    Checkpoint,
    LogChunk,
    MetricLine,
    Sample,
    Tested,
)
from forge_schema.model.lease import Fence, fence_params, share
from forge_schema.queue.inputs import CheckpointUnknown

# The worker tries these in order if some are damaged.
RESTORABLE = 20


class Records:
    """Stores records of an attempt. Methods return False if the lease is lost; all idempotent."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_log_chunk(self, fence: Fence, chunk: LogChunk) -> bool:
        return self._add("add_log_chunk", fence, **asdict(chunk))

    def add_checkpoint(self, fence: Fence, checkpoint: Checkpoint) -> bool:
        return self._add("add_checkpoint", fence, **asdict(checkpoint))

    def add_beginning(self, fence: Fence, attempt: int, number: int) -> bool:
        """Record the checkpoint of its job that an attempt begins with."""
        return self._add("add_beginning", fence, from_attempt=attempt, from_number=number)

    def add_artifacts(self, fence: Fence, artifacts: Sequence[Artifact]) -> bool:
        files = [{**asdict(a), "modified_at": _text(a.modified_at)} for a in artifacts]
        return self._add("add_artifacts", fence, files=Jsonb(files))

    def add_metrics(
        self, fence: Fence, lines: Sequence[MetricLine], *, progress: float | None = None
    ) -> bool:
        """Store metric lines, ordered by number; `progress` is the fraction done, 0 to 1."""
        # Not `asdict`, which copies every value: there are many lines.
        rows = Jsonb(
            [{"number": each.number, "step": each.step, "values": each.values} for each in lines]
        )
        kept = max((line.number + 1 for line in lines), default=0)
        return self._add("add_metrics", fence, lines=rows, kept=kept, progress=share(progress))

    def add_samples(self, fence: Fence, samples: Sequence[Sample]) -> bool:
        """Store samples, ordered by number."""
        kept = max((sample.number + 1 for sample in samples), default=0)
        lines = Jsonb([asdict(sample) for sample in samples])
        return self._add("add_samples", fence, lines=lines, kept=kept)

    def add_result(self, fence: Fence, values: Mapping[str, object]) -> bool:
        """Store the result of an attempt. The first one stays."""
        return self._add("add_result", fence, values=Jsonb(values))

    def add_tests(self, fence: Fence, tests: Sequence[Tested]) -> bool:
        """Store the result of each test."""
        return self._add("add_tests", fence, tests=Jsonb([asdict(test) for test in tests]))

    def newest_checkpoints(self, fence: Fence) -> Row | None:
        """Return what a lease's holder must know of its run's checkpoints; None if it is lost.

        `master_number` and `master_step` are of rank 0's newest one; `number`, `key`, `follows` and
        `step` of the holder's own newest one. Each is None if there is none.
        """
        return self._database.one("newest_checkpoints", again=True, **fence_params(fence))

    def latest_checkpoint(self, job_id: int) -> Row | None:
        """Return the newest complete checkpoint of a job, from any attempt, or None."""
        return self._database.one("latest_checkpoint", again=True, job_id=job_id)

    def restorable(self, job_id: int) -> list[Row]:
        """Return checkpoints to restore a job from, best first: its own newest, then its source.

        `companions` are the rank and the manifest's key of each other rank's part. Last, those that
        are `passed_over`: by the attempt that failed early with it, or 0 if somebody chose another.

        Raises:
            CheckpointUnknown: its source is gone, and it has no checkpoint of its own.
        """
        rows = self._database.rows("restorable", again=True, job_id=job_id, count=RESTORABLE)
        there = [row for row in rows if row["key"] is not None]
        if rows and not there:
            raise CheckpointUnknown(
                f"the checkpoint of job {rows[0]['job_id']} that this one starts from is gone",
                hint="submit the job again, from another checkpoint or from the beginning",
            )
        return there

    def _add(self, name: str, fence: Fence, **params: object) -> bool:
        held = self._database.one(name, again=True, **fence_params(fence), **params)
        return held is not None


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
