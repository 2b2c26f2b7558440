"""Ends that several requests report at the same time share one statement.

A request is authorised before it comes here, and hears only of its own ends.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

import structlog
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.lease import End, Ended

# The most ends of one statement.
TOGETHER = 100

log = structlog.get_logger(__name__)

Finish = Callable[[Sequence[End]], list[Ended]]


@dataclass(slots=True, eq=False)
class EndsReport:
    """The ends of one request, and what became of them; `alone` if they must go by themselves."""

    ends: Sequence[End]
    ended: list[Ended] | None = None
    error: Exception | None = None
    alone: bool = False

    @property
    def answered(self) -> bool:
        return self.alone or self.ended is not None or self.error is not None


class GroupFinishing:
    """Whoever finds the line idle reports at once; what arrives meanwhile goes together."""

    def __init__(self, finish: Finish) -> None:
        self._finish = finish
        self._line = Lock()
        self._reports: deque[EndsReport] = deque()

    @property
    def waiting(self) -> int:
        """How many requests wait for a statement that is under way."""
        return len(self._reports)

    def finish(self, ends: Sequence[End]) -> list[Ended]:
        """End leases, together with those of other requests if some wait.

        If the shared statement fails, each request repeats its own ends and raises its own error,
        unless no database answers: then all raise that error at once.
        """
        mine = EndsReport(ends)
        self._reports.append(mine)
        with self._line:
            while not mine.answered:
                self._report(self._next_group())
        if mine.error:
            raise mine.error
        return self._finish(ends) if mine.ended is None else mine.ended

    def _next_group(self) -> list[EndsReport]:
        """Take the reports that wait, up to one that names a job again or is too many."""
        group = [self._reports.popleft()]
        jobs = _jobs(group[0])
        while self._reports:
            more = _jobs(self._reports[0])
            if jobs & more or len(jobs | more) > TOGETHER:
                break
            jobs |= more
            group.append(self._reports.popleft())
        return group

    def _report(self, group: Sequence[EndsReport]) -> None:
        try:
            ended = self._finish([end for caller in group for end in caller.ends])
        except Exception as error:  # noqa: BLE001 - raised by `finish`, in the request's thread
            if len(group) == 1 or (isinstance(error, DatabaseUnreachable) and error.is_silent):
                for caller in group:
                    caller.error = error
                return
            log.warning("ends_not_taken", requests=len(group), error=str(error))
            for caller in group:
                caller.alone = True
            return
        left = iter(ended)
        for caller in group:
            caller.ended = [next(left) for _ in caller.ends]


def _jobs(report: EndsReport) -> set[int]:
    return {end.fence.job_id for end in report.ends}
