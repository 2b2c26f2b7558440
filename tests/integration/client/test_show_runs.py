"""`forge show` of a job on several machines: its members, and which of them failed first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_client.cli.show.endings import attempt_ending, decisive, ending
from forge_schema.model.job import Attempt, JobDetail
from forge_schema.model.states import Reason
from support.queue.runs import ended, formed, running, stop

if TYPE_CHECKING:
    from support.queue.rig import Rig


def told(rig: Rig, job_id: int) -> tuple[JobDetail, list[Attempt]]:
    """Return what the command knows of a job."""
    attempts = [Attempt(**row) for row in rig.jobs.attempts(job_id)]
    return JobDetail.model_validate(rig.jobs.job(job_id)), attempts


def test_the_end_of_an_attempt_is_that_of_the_member_that_failed_first(rig: Rig) -> None:
    run = running(rig, max_failures=1, backoff_s=0)
    run.start()
    ended(run, (2, Reason.EXIT_CODE, 3, "bad"))
    stop(run, 0)
    stop(run, 1)
    job, attempts = told(rig, run.job_id)
    assert attempt_ending(decisive(attempts)[1]) == (
        "attempt 1 failed with exit code 3 on rank 2 after 1 s"
    )
    run = formed(rig, run.job_id, run.workers)
    ended(run, (0, Reason.SUCCEEDED, 0, None), (1, Reason.OOM, 137, "out of memory"))
    job, attempts = told(rig, run.job_id)
    assert [(one.rank, one.worker, one.reason) for one in job.members] == [
        (0, "gpu-0", "succeeded"),
        (1, "gpu-1", "oom"),
        (2, "gpu-2", None),
    ]
    stop(run, 2)
    job, attempts = told(rig, run.job_id)
    assert {n: one.rank for n, one in decisive(attempts).items()} == {1: 2, 2: 1}
    assert ending(job) == (
        f"job {run.job_id} 'job' failed after 2 attempts: out of memory (exit code 137):"
        " rank 1 on gpu-1 failed first: out of memory"
    )


def test_the_files_of_all_ranks_are_listed(rig: Rig) -> None:
    run = running(rig, nodes=2)
    for rank, path in enumerate(("model.pt", "rank-1/log.txt")):
        rig.rows(
            "INSERT INTO artifact (job_id, token, path, attempt, key, bytes, sha256, created_at)"
            " VALUES (%s, %s, %s, 1, 'k', 1, repeat('a', 64), now())",
            run.job_id,
            run.fences[rank].token,
            path,
        )
    listed = [row["path"] for row in rig.jobs.artifacts(run.job_id)]
    for rank in range(2):
        run.end(rank)
    assert listed == ["model.pt", "rank-1/log.txt"]
    assert [row["path"] for row in rig.jobs.artifacts(run.job_id)] == listed
