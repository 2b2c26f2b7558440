"""The service where database and store are: what a server answers by routes of its own, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from forge_schema.model.job import JobUnknown
from forge_schema.service.caller import Forbidden
from forge_schema.service.service import Service
from forge_schema.service.submitting import Fields

if TYPE_CHECKING:
    from forge_schema.model.spec import JobSpec
    from forge_schema.service.uploads import StoredUploads
    from forge_schema.shell import ShellWanted


class LocalService(Service):
    """The verbs, and what a client of a server sends in a way of its own."""

    def whole(self, requests: Sequence[Fields]) -> list[JobSpec]:
        """Return requests as jobs, each with the fields of its `config_name` below its own.

        Raises:
            Forbidden: a job is another owner's.
            NoSuchTemplate: the owner has no such template.
            JobInvalid: a request is not a job.
        """
        return self._jobs_of(requests)

    @property
    def uploads(self) -> StoredUploads:
        """What the caller has uploaded."""
        return self._uploads

    def code_key(self, job_id: int, digest: str) -> str:
        """Return the key of an object of a job's code: its bundle, a segment, or its diff.

        Raises:
            ObjectMissing: the digest is none of theirs.
        """
        from forge_schema.storage import ObjectMissing, keys
        from forge_schema.storage.manifest import is_code

        row = self._visible(job_id)
        whole = {row["bundle_digest"], (row["spec"].get("git") or {}).get("diff")}
        if digest in whole:
            return keys.bundle(digest)
        key = keys.segment(digest)
        if row["bundle_digest"] and is_code(row["bundle_digest"], key, self._open_store()):
            return key
        raise ObjectMissing(f"job {job_id} has no code {digest}")

    def shell(self, job_id: int, wanted: ShellWanted) -> tuple[int, str]:
        """Record that the caller enters a running job; return its worker's id and name.

        Raises:
            NotRunning: the program of this rank does not run now.
        """
        from forge_schema.access.shells import Shells

        self._change(job_id)
        return Shells(self._database, actor=self.caller.actor).enter(job_id, wanted)

    def may_enter(self, job_id: int) -> bool:
        """Tell whether the caller may, still, enter a job."""
        try:
            self._change(job_id)
        except (Forbidden, JobUnknown):
            return False
        return True
