"""Cancelling, retrying, approving, annotating and deleting jobs, each in one statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import MOST_TAGS
from forge_schema.model.job import Acted, checked_note, checked_tags
from forge_schema.model.lease import array
from forge_schema.model.quantities import counted

if TYPE_CHECKING:
    from forge_schema.model.admin import Approved

MOST = 1_000
# A job moving between two tables may be seen in neither; the next try finds it.
LOOKS = 20


class TooManyJobs(ForgeError):
    """More jobs than one call accepts."""


class JobActs:
    """Acts on the jobs of one owner, or on any job if `owner` is None."""

    def __init__(self, database: Database, *, owner: str | None, actor: str) -> None:
        self._database = database
        self._whose = {"owner": owner, "actor": actor}

    def cancel(self, job_ids: Sequence[int]) -> dict[str, int]:
        """Cancel jobs that have not ended; a repeat changes nothing.

        Returns how many were `cancelled` at once, are `running` until their workers stop them, had
        already ended (`over`), and do not exist (`absent`).

        Raises:
            TooManyJobs: there are more than a thousand.
            ForgeError: some kept changing state.
        """
        some = _some(job_ids)
        return _counted(self.cancel_each(some), ("cancelled", "running", "over"), some)

    def cancel_each(self, job_ids: Sequence[int], *, reason: str | None = None) -> dict[int, Row]:
        """Cancel jobs; return for each that exists its state and what it `became`, as in `cancel`.

        The `reason` is for the audit trail.

        Raises:
            ForgeError: some kept changing state.
        """
        done: dict[int, Row] = {}
        left = list(job_ids)
        for _ in range(LOOKS):
            params = {"job_ids": array(left), "reason": reason, **self._whose}
            rows = _first(self._database.rows("cancel", again=True, **params))
            left = [i for i, row in rows.items() if row["became"] == "moved"]
            # One that was moving may have been removed by the next look.
            done |= {i: row for i, row in rows.items() if row["became"] != "moved"}
            if not left:
                return done
        named = f"job {left[0]}" if len(left) == 1 else counted(len(left), "job")
        raise ForgeError(
            f"{named} kept changing state and could not be cancelled", hint="try again"
        )

    def retry(self, job_ids: Sequence[int]) -> dict[str, int]:
        """Give failed and dead jobs fresh budgets and make them ready. Idempotent.

        Returns how many were `retried`, are `unfinished`, succeeded or were cancelled (`over`), and
        do not exist (`absent`).

        Raises:
            TooManyJobs: there are more than a thousand.
        """
        some = _some(job_ids)
        return _counted(self.retry_each(some), ("retried", "unfinished", "over"), some)

    def retry_each(
        self, job_ids: Sequence[int], checkpoint: tuple[int, int] | None = None
    ) -> dict[int, Row]:
        """Retry jobs; return for each that exists what it `became`, as in `retry`.

        A `checkpoint` is the attempt and number of the one that a job is to begin with.
        """
        attempt, number = checkpoint or (None, None)
        # The request's own id tells a repeat after a lost answer from a second retry.
        params = {
            "job_ids": array(job_ids),
            "request": uuid4().hex,
            "from_attempt": attempt,
            "from_number": number,
            **self._whose,
        }
        return _first(self._database.rows("retry", again=True, **params))

    def approve(self, job_ids: Sequence[int]) -> Approved:
        """Approve jobs of any owner; those that wait for nothing else are released. Idempotent.

        Raises:
            TooManyJobs: there are more than a thousand.
        """
        from forge_schema.model.admin import Approved  # noqa: PLC0415 - workers approve nothing

        some = _some(job_ids)
        rows = self._database.rows(
            "approve", again=True, job_ids=array(some), actor=self._whose["actor"]
        )
        first = _first(rows)
        became = {i: first[i]["became"] if i in first else "absent" for i in some}
        return Approved(**_counted(first, ("approved", "unasked"), some), became=became)

    def annotate(
        self,
        job_ids: Sequence[int],
        *,
        note: str | None,
        add: Sequence[str],
        remove: Sequence[str],
        archived: bool | None,
    ) -> Acted:
        """Set the note, the tags and the archive of jobs; None leaves what there is. Idempotent.

        Raises:
            AnnotationInvalid: a tag or the note cannot be one.
            TooManyJobs: there are more than a thousand.
        """
        return self._acted(
            "annotate",
            job_ids,
            note=checked_note(note),
            add=checked_tags(add),
            remove=checked_tags(remove),
            archived=archived,
            most=MOST_TAGS,
        )

    def delete(self, job_ids: Sequence[int]) -> Acted:
        """Remove ended jobs that no unfinished one needs, with all that they stored. Idempotent.

        Raises:
            TooManyJobs: there are more than a thousand.
        """
        return self._acted("delete", job_ids)

    def _acted(self, statement: str, job_ids: Sequence[int], **given: object) -> Acted:
        some = _some(job_ids)
        params = {"job_ids": array(some), **self._whose, **given}
        rows = _first(self._database.rows(statement, again=True, **params))
        became = {i: rows[i]["became"] if i in rows else "absent" for i in some}
        needs = {i: row["needed_by"] for i, row in rows.items() if row["became"] == "needed"}
        return Acted(became=became, needed_by=needs)


def _first(rows: Sequence[Row]) -> dict[int, Row]:
    """Return the first row of each job."""
    return {row["job_id"]: row for row in reversed(rows)}


def _counted(rows: dict[int, Row], names: Sequence[str], some: Sequence[int]) -> dict[str, int]:
    counts = Counter(row["became"] for row in rows.values())
    return {**{name: counts[name] for name in names}, "absent": len(some) - len(rows)}


def _some(job_ids: Sequence[int]) -> list[int]:
    some = sorted(set(job_ids))
    if len(some) > MOST:
        raise TooManyJobs(
            f"{counted(len(some), 'job')} are too many for one call",
            hint=f"send at most {MOST} at a time",
        )
    return some
