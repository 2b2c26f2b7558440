"""Who has uploaded which content: knowing a SHA-256 gives nobody the right to run its code."""

from collections.abc import Iterable

from forge_schema.database.pool import Database
from forge_schema.model.errors import ForgeError
from forge_schema.model.spec import JobSpec


class NotUploaded(ForgeError):
    """The job's owner has not uploaded what the job names by its SHA-256."""

    code = "not_uploaded"


class Uploads:
    """The bundles and saved images that each owner has uploaded."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, owner: str, sha256: str) -> None:
        """Record an upload whose content was verified; repeated, it changes nothing."""
        self._database.rows("add_upload", again=True, owner=owner, sha256=sha256)

    def missing(self, owner: str, sha256s: Iterable[str]) -> set[str]:
        """Return those that the owner has not uploaded."""
        rows = self._database.rows(
            "missing_uploads", again=True, owner=owner, sha256s=list(sha256s)
        )
        return {row["sha256"] for row in rows}


def named(spec: JobSpec) -> list[str]:
    """Return the SHA-256 of each upload that a job names."""
    return [digest for digest in (spec.bundle_digest, spec.image_tar) if digest]


def not_uploaded(spec: JobSpec) -> NotUploaded:
    """Return the refusal of a job."""
    return NotUploaded(
        f"{spec.owner} has not uploaded the bundle or the image that the job names:"
        f" {', '.join(named(spec))}",
        hint="upload it first: `forge submit` does, and so does POST /api/bundles or /api/images",
    )
