"""Check that a lease belongs to the worker that names it."""

from collections.abc import Sequence
from dataclasses import dataclass

from forge_schema.database.pool import Database
from forge_schema.model.lease import Fence, fence_params, fences
from forge_schema.storage import keys


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
