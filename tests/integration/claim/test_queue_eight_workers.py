"""Eight worker processes and hundreds of tiny jobs: each accepted once, the urgent ones first."""

from __future__ import annotations

from itertools import chain, pairwise

from forge_schema.database.pool import Database
from forge_schema.queue.queue import Queue
from support.queue.queue_worker import worked
from support.queue.rig import spec

WORKERS = 8
JOBS = 600


def test_eight_workers_run_each_job_once_in_the_order_of_priority(
    database_url: str,
) -> None:
    # The urgent ones come last, so that the order of submission is not the order wanted.
    specs = [spec(priority=n * 10 // JOBS) for n in range(JOBS)]
    with Database(database_url) as database:
        submitted = Queue(database, actor="user:ann").submit(specs)
        answers = worked(database_url, WORKERS)
        ran = [one for one, _ in answers]
        assert sorted(job_id for _, job_id in chain.from_iterable(ran)) == submitted
        assert sum(accepted for _, accepted in answers) == JOBS
        with database.connection() as connection:
            (counts,) = connection.execute(
                "SELECT (SELECT count(*) FROM ready) AS ready, (SELECT count(*) FROM lease) AS"
                " lease, count(DISTINCT attempt.job_id) AS jobs, count(*) AS attempts,"
                " max(attempt.attempt) AS most, bool_and(outcome.token = attempt.token) AS same"
                " FROM attempt JOIN outcome ON outcome.job_id = attempt.job_id"
            ).fetchall()
            claims = connection.execute(
                "SELECT priority FROM attempt JOIN job_status USING (job_id) ORDER BY attempt.token"
            ).fetchall()
    whole = {"ready": 0, "lease": 0, "jobs": JOBS, "attempts": JOBS, "most": 1, "same": True}
    assert counts == whole
    assert sum(len(one) > 0 for one in ran) > 1
    for one in ran:
        # Any more urgent job that a worker passed over was locked by another, which kept it.
        assert all(before[0] >= after[0] for before, after in pairwise(one))
    assert _worst_overtaking([row["priority"] for row in claims]) < WORKERS


def _worst_overtaking(priorities: list[int]) -> int:
    """Return the largest number of more urgent jobs that were claimed after any one job."""
    waiting = [0] * (max(priorities) + 2)
    worst = 0
    for priority in reversed(priorities):
        worst = max(worst, sum(waiting[priority + 1 :]))
        waiting[priority] += 1
    return worst
