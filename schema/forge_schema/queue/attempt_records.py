"""The index rows of stored objects, written only by a lease's holder; and who holds which."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from forge_schema.compatibility import WITHOUT_PACKS
from forge_schema.database.pool import Database, DatabaseUser, Row
from forge_schema.model.attempt_records import (
    AttemptRecord,
    BeginsWith,
    CheckpointRecord,
    GivenInputs,
    LogChunkRecord,
    MetricLines,
    MetricRecord,
    ReportedResult,
    ReportedTests,
    Sample,
    Samples,
    StoredArtifacts,
)
from forge_schema.model.lease import Fence, fence_params, fences, share
from forge_schema.queue.inputs import CheckpointUnknown
from forge_schema.storage import keys

# The worker tries these in order if some are damaged.
RESTORABLE = 20


@dataclass(frozen=True, slots=True)
class OwnLease:
    """A live lease, with the data that its holder needs to name objects."""

    fence: Fence
    attempt: int
    bundle_digest: str | None
    image_tar: str | None
    # The manifests of the checkpoint that the job starts from, as long as it exists.
    source_job_id: int | None = None
    source_keys: Sequence[str] | None = None
    # The jobs whose artifacts or checkpoints are its inputs.
    input_jobs: Sequence[int] = ()

    @property
    def keys(self) -> keys.AttemptKeys:
        """The names of the objects that the holder writes."""
        return keys.AttemptKeys(self.fence.job_id, self.attempt, self.fence.mark)


class OwnLeases:
    """Looks up one worker's leases. A fence never changes its holder, so answers stay valid."""

    def __init__(self, database: Database, worker_id: int) -> None:
        self._database = database
        self._worker_id = worker_id

    def lease(self, fence: Fence) -> OwnLease | None:
        """Return the worker's live lease of this fence, or None."""
        row = self._database.row(
            "own_lease", again=True, worker_id=self._worker_id, **fence_params(fence)
        )
        return None if row is None else OwnLease(fence, **row)

    def job(self, job_id: int) -> bool:
        """Tell whether the worker holds a live lease of this job."""
        params = {"job_id": job_id, "worker_id": self._worker_id}
        return self._database.row("own_job", again=True, **params) is not None

    def own(self, leases: Sequence[Fence]) -> bool:
        """Tell whether all these leases, live or ended, are or were the worker's."""
        if not leases:
            return True
        params = {"worker_id": self._worker_id, **fences(leases)}
        row = self._database.row("own_fences", again=True, **params)
        return row is not None and row["own"] == len(leases)


class Records(DatabaseUser):
    """Stores records of an attempt, and reads its checkpoints."""

    def record(self, fence: Fence, record: AttemptRecord) -> bool:
        """Store a record; what has a number that is stored already is skipped. Idempotent.

        Returns False if the lease is lost.
        """
        name, params = _statement(record)
        held = self._database.row(name, again=True, **fence_params(fence), **params)
        return held is not None

    def newest_checkpoints(self, fence: Fence) -> Row | None:
        """Return what a lease's holder must know of its run's checkpoints; None if it is lost.

        `master_number` and `master_step` are of rank 0's newest one; `number`, `key`, `follows` and
        `step` of the holder's own newest one. Each is None if there is none.
        """
        return self._database.row(
            "newest_checkpoints", again=True, without_packs=WITHOUT_PACKS, **fence_params(fence)
        )

    def latest_checkpoint(self, job_id: int) -> Row | None:
        """Return the newest complete checkpoint of a job, from any attempt, or None."""
        return self._database.row("latest_checkpoint", again=True, job_id=job_id)

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


def _statement(record: AttemptRecord) -> tuple[str, dict[str, object]]:  # noqa: PLR0911 - one each
    """Return the statement that stores a record, and its parameters."""
    match record:
        case LogChunkRecord():
            return "add_log_chunk", asdict(record)
        case CheckpointRecord():
            return "add_checkpoint", asdict(record)
        case BeginsWith():
            return "add_beginning", {"from_attempt": record.attempt, "from_number": record.number}
        case StoredArtifacts():
            rows = [{**asdict(a), "modified_at": _text(a.modified_at)} for a in record.artifacts]
            return "add_artifacts", {"files": Jsonb(rows)}
        case MetricLines(lines):
            # Not `asdict`, which copies every value: there are many lines.
            rows = [
                {"number": line.number, "step": line.step, "values": line.values} for line in lines
            ]
            params = {"kept": _kept(lines), "progress": share(record.progress)}
            return "add_metrics", {"lines": Jsonb(rows), **params}
        case Samples(samples):
            rows = [asdict(sample) for sample in samples]
            return "add_samples", {"lines": Jsonb(rows), "kept": _kept(samples)}
        case ReportedResult():
            return "add_result", {"values": Jsonb(record.values)}
        case GivenInputs(inputs):
            return "add_inputs", {"inputs": Jsonb({n: asdict(i) for n, i in inputs.items()})}
        case ReportedTests():
            return "add_tests", {"tests": Jsonb([asdict(test) for test in record.tests])}


def _kept(rows: Sequence[MetricRecord] | Sequence[Sample]) -> int:
    return max((row.number + 1 for row in rows), default=0)


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
