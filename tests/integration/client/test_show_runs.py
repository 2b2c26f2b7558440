"""`forge show` of a job on several machines: its members, and which of them failed first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_client.results.endings import attempt_ending, decisive, ending
from forge_schema.explain import explain
from forge_schema.job_filter import parse
from forge_schema.model.job import Attempt, JobDetail
from forge_schema.model.states import Phase, Reason
from forge_schema.read.job_pages import page
from forge_schema.read.overview import OverviewReader
from support.gangs.runs import ended, formed, gang, running, stop

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


def test_a_job_tells_how_many_machines_it_needs_and_which_run_it(rig: Rig) -> None:
    alone = rig.submit()
    (worker,) = rig.worker("alone").claim()
    waiting = gang(rig, 2)
    run = running(rig)
    shown = {row["job_id"]: (row["nodes"], row["workers"]) for row in rig.jobs.jobs()}
    assert shown == {
        worker.job_id: (1, ["alone"]),
        waiting: (2, []),
        run.job_id: (3, ["gpu-0", "gpu-1", "gpu-2"]),
    }
    run.end(0)
    assert rig.jobs.job(run.job_id)["workers"] == ["gpu-0", "gpu-1", "gpu-2"]
    assert rig.jobs.job(alone)["nodes"] == 1
    text = explain(rig.database, run.job_id).text
    assert text.startswith("running on gpu-0, gpu-1 and gpu-2 for ")


def test_the_overview_has_the_workers_and_the_gpus_of_all_ranks(rig: Rig) -> None:
    run = running(rig, nodes=2, gpus=4)
    (job,) = OverviewReader(rig.database).now(jobs=10)["jobs"]
    assert (job["job_id"], job["worker"], job["nodes"]) == (run.job_id, "gpu-0", 2)
    assert (job["workers"], job["gpus"]) == (["gpu-0", "gpu-1"], 8)


def test_a_filter_by_worker_finds_the_job_of_each_rank_once(rig: Rig) -> None:
    run = running(rig)
    for text in ("worker:gpu-0", "worker:gpu-2", "worker:gpu-*", "state:running"):
        found = page(rig.database, parse(text), count=1)
        assert [row["job_id"] for row in found.jobs] == [run.job_id], text
        assert (found.before, found.jobs[0]["worker"]) == (None, "gpu-0")
    for rank in range(3):
        run.end(rank)
    (ended_job,) = page(rig.database, parse("")).jobs
    assert (ended_job["nodes"], ended_job["workers"], ended_job["worker"]) == (3, [], "gpu-0")


def test_a_member_that_is_prepared_is_said_to_wait_for_the_others(rig: Rig) -> None:
    run = running(rig, nodes=2)
    for fence in run.fences:
        rig.queue.report(fence, Phase.PREPARING)
    rig.queue.gather(run.fences[1], 1, {})
    job, _ = told(rig, run.job_id)
    assert [one.doing for one in job.members] == ["preparing", "waiting for the others"]
    run.start()
    job, _ = told(rig, run.job_id)
    assert [one.doing for one in job.members] == ["running", "running"]


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
