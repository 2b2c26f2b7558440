"""What new jobs name: jobs to wait for, checkpoints, other jobs' files, their owners' uploads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from forge_schema.database.pool import Database, DatabaseUser
from forge_schema.model.errors import ForgeError
from forge_schema.model.job import job_unknown
from forge_schema.model.lease import Fence, array, fence_params
from forge_schema.model.spec.inputs import ARTIFACT, CHECKPOINT, OF_JOBS, NamedSource, source_of
from forge_schema.model.stored import PAGE, InputCheckpoint, InputFile, in_chunks
from forge_schema.storage.manifest import CheckpointUnsound, chunk_list

if TYPE_CHECKING:
    from forge_schema.model.spec import CheckpointSource, JobSpec
    from forge_schema.storage import Store

# In one answer about the inputs of a job.
CHUNKS_SHOWN = 5_000


def check_needs(database: Database, spec: JobSpec, *, any_owner: bool) -> None:
    """Reject a job that waits for an unknown job; another owner's job counts as unknown.

    Raises:
        JobUnknown: a job does not exist or belongs to another owner.
    """
    if needs := array(list(spec.needs())):
        params = {"job_ids": needs, "owner": spec.owner, "any_owner": any_owner}
        row = database.row("unknown_job", again=True, **params)
        if row is not None:
            raise job_unknown(row["id"])


class InputUnknown(ForgeError):
    """Another job does not have the files that are an input."""


def check_inputs(database: Database, specs: Iterable[JobSpec]) -> None:
    """Reject jobs whose inputs no other job has stored, unless they were submitted before.

    What a job waits for may store them later.

    Raises:
        JobUnknown: the other job does not exist or belongs to another owner.
        InputUnknown: it does not have these files, or has not ended.
    """
    checked: set[tuple[str, str, bool]] = set()
    for spec in specs:
        for name, text in spec.inputs.items():
            source = source_of(text)
            if source.kind not in OF_JOBS:
                continue
            waits = source.job_id in {*spec.after_ok, *spec.after_any}
            if (known := (spec.owner, text, waits)) not in checked:
                _check_input(database, spec, name, source, waits=waits)
                checked.add(known)


def _check_input(
    database: Database, spec: JobSpec, name: str, source: NamedSource, *, waits: bool
) -> None:
    row = database.row(
        "input_source",
        again=True,
        owner=spec.owner,
        key=spec.idempotency_key,
        source_id=source.job_id,
        path=source.path,
        attempt=source.parts.get("attempt"),
        number=source.parts.get("number"),
    )
    assert row is not None  # noqa: S101 - the statement always returns one row
    if row["submitted"] or (waits and row["visible"] and not row["over"]):
        return
    if not row["visible"]:
        raise job_unknown(source.job_id)
    if source.kind == CHECKPOINT and row["checkpoint"]:
        return
    if source.kind == ARTIFACT and row["over"] and row["artifact"]:
        return
    raise _lacks_input(spec.inputs[name], name, source, over=row["over"])


def _lacks_input(text: str, name: str, source: NamedSource, *, over: bool) -> InputUnknown:
    job_id = source.job_id
    if not over:
        return InputUnknown(
            f"the input {name}={text} is not there: job {job_id} has not ended",
            hint=f"add --after-ok {job_id}, so that the job waits for it",
        )
    what, command = "such checkpoint", "checkpoints"
    if source.kind == ARTIFACT:
        what = f"artifact {source.path!r}" if source.path else "artifacts"
        command = "artifacts"
    return InputUnknown(
        f"the input {name}={text} is not there: job {job_id} has no {what}",
        hint=f"`forge {command} {job_id}` lists what there is",
    )


class InputFiles:
    """The stored files of other jobs that are inputs of a lease's job; no others are there.

    Without a store, nothing is known of artifacts in chunks.
    """

    def __init__(self, database: Database, store: Store | None) -> None:
        self._database = database
        self._store = store

    def artifacts(
        self, fence: Fence, source_id: int, path: str, after: str = ""
    ) -> list[InputFile]:
        """Return some artifacts at a path or below it, the first ones after another path.

        Raises:
            CheckpointUnsound: the list of an artifact's chunks is damaged.
            StoreError: the store does not have it, or does not answer.
        """
        params = {"source_id": source_id, "path": path, "after": after, "count": PAGE}
        rows = self._database.rows("input_artifacts", again=True, **fence_params(fence), **params)
        files: list[InputFile] = []
        for row in rows:
            files.append(self._file(**row))
            # An answer is not to become large.
            if sum(len(file.keys) for file in files if file.chunk_bytes) > CHUNKS_SHOWN:
                break
        return files

    def _file(self, key: str, **fields: Any) -> InputFile:  # noqa: ANN401 - columns of all types
        if self._store is None or not in_chunks(key):
            return InputFile(**fields, keys=[key])
        entry = chunk_list(self._store, key)
        if entry.size != fields["bytes"]:
            raise CheckpointUnsound(f"the list of chunks {key} is of another file")
        keys = list(entry.objects)
        return InputFile(**fields, keys=keys, chunk_bytes=entry.chunk_bytes if entry.chunks else 0)

    def checkpoint(
        self, fence: Fence, source_id: int, attempt: int | None, number: int | None
    ) -> InputCheckpoint | None:
        """Return a complete checkpoint, the best one if none is named; None if there is none."""
        params = {"source_id": source_id, "attempt": attempt, "number": number}
        row = self._database.row("input_checkpoint", again=True, **fence_params(fence), **params)
        return None if row is None else InputCheckpoint(**row)


class CheckpointUnknown(ForgeError):
    """The job does not have this checkpoint."""


class Sources(DatabaseUser):
    """Looks up checkpoints; another owner's job counts as absent."""

    def check(self, spec: JobSpec, *, any_owner: bool) -> None:
        """Reject a job whose source is missing, unless it was submitted before.

        Raises:
            JobUnknown: the job does not exist or belongs to another owner.
            CheckpointUnknown: the source job does not have this checkpoint.
        """
        if spec.from_checkpoint is None:
            return
        row = self._look(spec, any_owner=any_owner)
        if not row["submitted"] and not (row["visible"] and row["found"]):
            raise _lack(spec.from_checkpoint, row)

    def lack(self, spec: JobSpec, *, any_owner: bool) -> ForgeError:
        """Return the error for a job whose source was not found."""
        assert spec.from_checkpoint is not None  # noqa: S101 - only a given source can be missing
        return _lack(spec.from_checkpoint, self._look(spec, any_owner=any_owner))

    def _look(self, spec: JobSpec, *, any_owner: bool) -> Mapping[str, Any]:
        asked = spec.from_checkpoint
        assert asked is not None  # noqa: S101 - checked by the callers
        row = self._database.row(
            "source",
            again=True,
            owner=spec.owner,
            key=spec.idempotency_key,
            any_owner=any_owner,
            **asked.model_dump(),
        )
        assert row is not None  # noqa: S101 - the statement always returns one row
        return row


def _lack(asked: CheckpointSource, row: Mapping[str, Any]) -> ForgeError:
    job_id = asked.job_id
    if not row["visible"]:
        return job_unknown(job_id)
    if not row["some"] or asked.attempt is None:
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


class Uploads(DatabaseUser):
    """The bundles and saved images of each owner.

    Knowing a SHA-256 does not give the right to run its code.
    """

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
