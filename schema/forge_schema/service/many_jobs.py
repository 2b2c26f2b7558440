"""The verbs that act on many jobs at once. Other owners' jobs count as absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_schema.model.fields import Flag
from forge_schema.model.job import Acted, CancelledMany, RetriedMany
from forge_schema.service.caller import Verbs
from forge_schema.service.parameters import JobIds, JobNote, Tags
from forge_schema.service.verb import SUBMITTER, verb

if TYPE_CHECKING:
    from forge_schema.queue.cancel_retry import JobActs


class ManyJobs(Verbs):
    """Each is one transaction, and says what became of the jobs."""

    @verb("POST", "/queue/cancel", SUBMITTER, answer=CancelledMany)
    def cancel_all(self, job_ids: JobIds) -> dict[str, int]:
        """Cancel up to a thousand jobs in one transaction, and count the outcomes. Idempotent."""
        return self._acts.cancel(job_ids)

    @verb("POST", "/queue/retry", SUBMITTER, again=False, answer=RetriedMany)
    def retry_all(self, job_ids: JobIds) -> dict[str, int]:
        """Give up to a thousand failed jobs fresh budgets, queue them again, count the outcomes."""
        return self._acts.retry(job_ids)

    @verb("POST", "/queue/annotate", SUBMITTER)
    def annotate(
        self,
        job_ids: JobIds,
        *,
        note: JobNote = None,
        add: Tags = (),
        remove: Tags = (),
        archived: Flag | None = None,
    ) -> Acted:
        """Set the note of up to a thousand jobs, add and remove tags, archive them. Idempotent.

        What is null or left out stays as it is; an empty note is none. Lists and queries leave out
        archived jobs, unless they ask for them with `archived:yes`.
        """
        return self._acts.annotate(job_ids, note=note, add=add, remove=remove, archived=archived)

    @verb("POST", "/queue/delete", SUBMITTER)
    def delete(self, job_ids: JobIds) -> Acted:
        """Delete up to a thousand ended jobs, with all that they stored. Idempotent.

        Jobs that an unfinished one needs stay. What a deleted job cost stays in the reports, and
        the act in the audit trail.
        """
        return self._acts.delete(job_ids)

    @property
    def _acts(self) -> JobActs:
        from forge_schema.queue.cancel_retry import JobActs

        return JobActs(self._database, owner=self.caller.own, actor=self.caller.actor)
