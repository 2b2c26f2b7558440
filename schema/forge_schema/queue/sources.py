"""The checkpoints that new jobs start from: whether one is there, and why not."""

from collections.abc import Mapping
from typing import Any

from forge_schema.database.pool import Database
from forge_schema.model.errors import ForgeError
from forge_schema.model.spec import CheckpointSource, JobSpec


class JobUnknown(ForgeError):
    """There is no job of this id."""

    code = "job_unknown"


class CheckpointUnknown(ForgeError):
    """The job has no such checkpoint."""

    code = "checkpoint_unknown"


class Sources:
    """Looks for checkpoints; a job of another owner's is as absent as none."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def check(self, spec: JobSpec, *, any_owner: bool) -> None:
        """Refuse a job that cannot start from where it is to, unless it was submitted before.

        Raises:
            JobUnknown: there is no such job, or it is somebody else's.
            CheckpointUnknown: it has no such checkpoint.
        """
        if spec.from_checkpoint is None:
            return
        found = self._look(spec, any_owner=any_owner)
        if not found["submitted"] and not (found["visible"] and found["found"]):
            raise _lack(spec.from_checkpoint, found)

    def lack(self, spec: JobSpec, *, any_owner: bool) -> ForgeError:
        """Return why a job's source could not be found a moment ago."""
        assert spec.from_checkpoint is not None  # noqa: S101 - or nothing could lack
        return _lack(spec.from_checkpoint, self._look(spec, any_owner=any_owner))

    def _look(self, spec: JobSpec, *, any_owner: bool) -> Mapping[str, Any]:
        asked = spec.from_checkpoint
        assert asked is not None  # noqa: S101 - the callers have looked
        row = self._database.one(
            "source",
            again=True,
            owner=spec.owner,
            key=spec.idempotency_key,
            any_owner=any_owner,
            **asked.model_dump(),
        )
        assert row is not None  # noqa: S101 - the statement selects one row always
        return row


def _lack(asked: CheckpointSource, found: Mapping[str, Any]) -> ForgeError:
    job_id = asked.job_id
    if not found["visible"]:
        return JobUnknown(f"there is no job {job_id}", hint="`forge ps` lists the jobs")
    if not found["some"] or asked.attempt is None:
        return CheckpointUnknown(
            f"job {job_id} has no complete checkpoint",
            hint="wait until it has stored one, or start from the beginning",
        )
    return CheckpointUnknown(
        f"job {job_id} has no checkpoint {asked.attempt}.{asked.number}",
        hint=f"it may have been thinned out; `forge checkpoints {job_id}` lists what there is",
    )


def from_params(asked: CheckpointSource | None) -> dict[str, int | None]:
    """Return what a job is to start from, as the submit statement takes it."""
    if asked is None:
        return {}
    return {"from_job": asked.job_id, "from_attempt": asked.attempt, "from_number": asked.number}
