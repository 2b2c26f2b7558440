"""The verbs that act on jobs: on one, or on many at once, where those of others count as absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_schema.model.fields import Answer, Flag, Note, ShownState
from forge_schema.model.job import Acted
from forge_schema.model.states import Role, StateWord, in_words
from forge_schema.service.caller import Forbidden, Verbs
from forge_schema.service.parameters import AttemptCheckpoint, JobId, JobIds, JobNote, Tags
from forge_schema.service.verb import SUBMITTER, verb

if TYPE_CHECKING:
    from forge_schema.queue.cancel_retry import JobActs
    from forge_schema.queue.queue import Queue


JOB = "/queue/jobs/{job_id}"


class Cancelled(Answer):
    """The job's state; `running` until its worker has stopped it."""

    state: ShownState


class CancelledMany(Answer):
    """How many jobs are cancelled, run until their workers stop them, had ended, do not exist."""

    cancelled: int
    running: int
    over: int
    absent: int


class RetriedMany(Answer):
    """How many jobs are retried, have not ended, ended otherwise, do not exist."""

    retried: int
    unfinished: int
    over: int
    absent: int


class Preempted(Answer):
    """Whether the job was running and so was asked for."""

    asked: bool


class ActsOnJobs(Verbs):
    """Each act is one transaction, and says what became of the jobs."""

    @verb("POST", f"{JOB}/cancel", SUBMITTER, answer=Cancelled, errors=(404,), bare=True)
    def cancel(self, job_id: JobId, *, reason: Note | None = None) -> StateWord:
        """Cancel a job. One that has ended stays as it is. Idempotent.

        The answer is its state: `running` until its worker has stopped it. The `reason` is for the
        audit trail.
        """
        self._change(job_id)
        return StateWord(in_words(self._queue.cancel(job_id, reason=reason)))

    # Repeated, a retry or a preemption would hit the attempt that the first one started.

    @verb("POST", f"{JOB}/retry", SUBMITTER, again=False, errors=(404, 409), bare=True)
    def retry(self, job_id: JobId, *, checkpoint: AttemptCheckpoint | None = None) -> None:
        """Give a failed job fresh budgets and queue it again.

        It begins with its newest checkpoint, or another: of an attempt, with a number.
        """
        self._change(job_id)
        self._queue.retry(job_id, checkpoint)

    @verb("POST", f"{JOB}/preempt", SUBMITTER, again=False, answer=Preempted, errors=(404,))
    def preempt(self, job_id: JobId) -> bool:
        """Preempt a running job, as a spot notice would. Idempotent."""
        self._change(job_id)
        return self._queue.preempt(job_id)

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

    def _change(self, job_id: int) -> None:
        """Let the caller change a job."""
        self.caller.require(Role.SUBMITTER)
        owner = self._visible(job_id)["owner"]
        if not self.caller.changes(owner):
            raise Forbidden(f"job {job_id} is of {owner}: you may see it, and not change it")

    @property
    def _queue(self) -> Queue:
        from forge_schema.queue.queue import Queue

        return Queue(self._database, actor=self.caller.actor)
