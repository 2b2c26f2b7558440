"""Acting on many jobs at once; each answer says what became of each of them."""

from collections.abc import Sequence
from uuid import uuid4

from forge_schema.database.pool import Database
from forge_schema.model.errors import ForgeError

MOST = 1_000
# A job that is between two places at one look is in neither at the next.
LOOKS = 20


class TooManyJobs(ForgeError):
    """These are more jobs than one act is for."""

    code = "too_many_jobs"


class JobActs:
    """Acts on the jobs of one owner, or on everybody's where `owner` is None."""

    def __init__(self, database: Database, *, owner: str | None, actor: str) -> None:
        self._database = database
        self._owner = owner
        self._actor = actor

    def cancel(self, job_ids: Sequence[int]) -> dict[str, int]:
        """Cancel what has not ended; a repeat changes nothing.

        Returns how many were `cancelled` at once, are `running` until their workers stop them, had
        ended before (`over`), and are `absent`.

        Raises:
            TooManyJobs: there are over a thousand.
            ForgeError: they move too fast.
        """
        left = _some(job_ids)
        counts = {"cancelled": 0, "running": 0, "over": 0, "absent": 0}
        for look in range(LOOKS):
            row = self._database.one("cancel_jobs", again=True, **self._of(left))
            assert row is not None  # noqa: S101 - the statement selects one row always
            if look == 0:
                counts["absent"] = len(left) - len(row["wanted"])
            seen: set[int] = set()
            for name in ("cancelled", "running", "over"):
                counts[name] += len(set(row[name]) - seen)
                seen |= set(row[name])
            left = [i for i in row["wanted"] if i not in seen]
            if not left:
                return counts
        raise ForgeError(f"{len(left)} jobs move too fast to be cancelled", hint="try again")

    def retry(self, job_ids: Sequence[int]) -> dict[str, int]:
        """Give failed and dead jobs fresh budgets and make them ready; a repeat changes nothing.

        Returns how many were `retried`, are `unfinished`, ended well or by a cancel (`over`), and
        are `absent`.

        Raises:
            TooManyJobs: there are over a thousand.
        """
        some = _some(job_ids)
        row = self._database.one("retry_jobs", again=True, request=uuid4().hex, **self._of(some))
        assert row is not None  # noqa: S101 - as above
        retried, over, wanted = (len(set(row[name])) for name in ("retried", "over", "wanted"))
        unfinished = wanted - retried - over
        absent = len(some) - wanted
        return {"retried": retried, "unfinished": unfinished, "over": over, "absent": absent}

    def _of(self, job_ids: Sequence[int]) -> dict[str, object]:
        return {"job_ids": list(job_ids), "owner": self._owner, "actor": self._actor}


def _some(job_ids: Sequence[int]) -> list[int]:
    some = sorted(set(job_ids))
    if len(some) > MOST:
        raise TooManyJobs(f"{len(some)} jobs are too many at once", hint=f"take {MOST} at a time")
    return some
