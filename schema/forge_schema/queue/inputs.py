"""The inputs of new jobs: jobs to wait for, checkpoints to start from, their owners' uploads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from forge_schema.database.pool import Database
from forge_schema.model.errors import ForgeError
from forge_schema.model.job import job_unknown
from forge_schema.model.lease import array

if TYPE_CHECKING:
    from forge_schema.model.spec import CheckpointSource, JobSpec


def check_needs(database: Database, spec: JobSpec, *, any_owner: bool) -> None:
    """Reject a job that waits for an unknown job; another owner's job counts as unknown.

    Raises:
        JobUnknown: a job does not exist or belongs to another owner.
    """
    if needs := array(list(spec.needs())):
        params = {"job_ids": needs, "owner": spec.owner, "any_owner": any_owner}
        row = database.one("unknown_job", again=True, **params)
        if row is not None:
            raise job_unknown(row["id"])


class CheckpointUnknown(ForgeError):
    """The job does not have this checkpoint."""

    code = "checkpoint_unknown"


class Sources:
    """Looks up checkpoints; another owner's job counts as absent."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def check(self, spec: JobSpec, *, any_owner: bool) -> None:
        """Reject a job whose source is missing, unless it was submitted before.

        Raises:
            JobUnknown: the job does not exist or belongs to another owner.
            CheckpointUnknown: the source job does not have this checkpoint.
        """
        if spec.from_checkpoint is None:
            return
        found = self._look(spec, any_owner=any_owner)
        if not found["submitted"] and not (found["visible"] and found["found"]):
            raise _lack(spec.from_checkpoint, found)

    def lack(self, spec: JobSpec, *, any_owner: bool) -> ForgeError:
        """Return the error for a job whose source was not found."""
        assert spec.from_checkpoint is not None  # noqa: S101 - only a given source can be missing
        return _lack(spec.from_checkpoint, self._look(spec, any_owner=any_owner))

    def _look(self, spec: JobSpec, *, any_owner: bool) -> Mapping[str, Any]:
        asked = spec.from_checkpoint
        assert asked is not None  # noqa: S101 - checked by the callers
        row = self._database.one(
            "source",
            again=True,
            owner=spec.owner,
            key=spec.idempotency_key,
            any_owner=any_owner,
            **asked.model_dump(),
        )
        assert row is not None  # noqa: S101 - the statement always returns one row
        return row


def _lack(asked: CheckpointSource, found: Mapping[str, Any]) -> ForgeError:
    job_id = asked.job_id
    if not found["visible"]:
        return job_unknown(job_id)
    if not found["some"] or asked.attempt is None:
        return CheckpointUnknown(
            f"job {job_id} has no complete checkpoint",
            hint="wait until it has stored one, or submit without a checkpoint",
        )
    return no_checkpoint(job_id, asked.attempt, asked.number or 0)


def no_checkpoint(job_id: int, attempt: int, number: int) -> CheckpointUnknown:
    """Return the error for a checkpoint that a job does not have."""
    return CheckpointUnknown(
        f"job {job_id} has no checkpoint {attempt}.{number}",
        hint=f"it may have been thinned out; `forge checkpoints {job_id}` lists what there is",
    )


def from_params(asked: CheckpointSource | None) -> dict[str, int | None]:
    """Return a job's source as parameters of the submit statement."""
    if asked is None:
        return {}
    return {"from_job": asked.job_id, "from_attempt": asked.attempt, "from_number": asked.number}


class NotUploaded(ForgeError):
    """The job's owner has not uploaded content that the job names by SHA-256."""

    code = "not_uploaded"


class Uploads:
    """The bundles and saved images of each owner.

    Knowing a SHA-256 does not give the right to run its code.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, owner: str, sha256: str) -> None:
        """Record an upload whose content was verified. Idempotent."""
        self._database.rows("add_upload", again=True, owner=owner, sha256=sha256)

    def missing(self, owner: str, sha256s: Iterable[str]) -> set[str]:
        """Return those uploads that the owner has not made."""
        rows = self._database.rows(
            "missing_uploads", again=True, owner=owner, sha256s=list(sha256s)
        )
        return {row["sha256"] for row in rows}


def named(spec: JobSpec) -> list[str]:
    """Return the SHA-256 of each upload that a job names."""
    diff = spec.git.diff if spec.git else None
    return [digest for digest in (spec.bundle_digest, spec.image_tar, diff) if digest]


def not_uploaded(spec: JobSpec) -> NotUploaded:
    """Return the error for a job."""
    return NotUploaded(
        f"{spec.owner} has not uploaded the bundle, the image or the diff that the job names:"
        f" {', '.join(named(spec))}",
        hint="upload it first, as `forge submit` does, with POST /api/v1/bundles or /api/v1/images",
    )
