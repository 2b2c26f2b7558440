"""Runs on several machines, formed by hand: each worker has the lease of one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from forge_schema.model.lease import End, Ended, Fence
from forge_schema.model.states import Phase, Reason, Standing, State

if TYPE_CHECKING:
    from support.queue.rig import Rig, Worker

FORM = """
    WITH gone AS (DELETE FROM ready WHERE job_id = %s RETURNING *)
    INSERT INTO lease (
        job_id, rank, nodes, nonce, worker_id, lane_id, nice, attempt, failures, losses,
        preemptions, ready_at, claimed_at, expires_at
    )
    SELECT
        job_id, place - 1, %s, nonce, worker_id, lane_id, nice, attempt + 1, failures, losses,
        preemptions, ready_at, forge_now(), forge_now() + interval '120 s'
    FROM gone
    CROSS JOIN unnest(%s::bigint[], %s::uuid[]) WITH ORDINALITY AS one (worker_id, nonce, place)
    ORDER BY place
    RETURNING token
"""


@dataclass
class Run:
    """One run of a job: its workers and their fences, by rank."""

    rig: Rig
    job_id: int
    workers: list[Worker]
    fences: list[Fence]

    def end(self, rank: int, reason: Reason = Reason.SUCCEEDED, **changes: Any) -> Ended:  # noqa: ANN401  fields of all types
        """End one member; `changes` are fields of End."""
        return self.rig.queue.finish([End(self.fences[rank], reason, **changes)])[0]

    def standing(self, rank: int) -> Standing:
        """Return what a member is told when it renews its lease."""
        fence = self.fences[rank]
        return self.workers[rank].renew_fences([fence]).standings[fence]

    def start(self) -> None:
        """Have every member report that its program runs."""
        for fence in self.fences:
            self.rig.queue.report(fence, Phase.RUNNING)

    def members(self) -> list[dict[str, Any]]:
        """Return the stored attempts of this run, by rank."""
        rows = self.rig.jobs.attempts(self.job_id)
        tokens = {fence.token for fence in self.fences}
        return [row for row in rows if row["token"] in tokens]

    def reasons(self) -> list[str]:
        """Return the stored reason of each rank."""
        return [row["reason"] for row in self.members()]


def gang(rig: Rig, nodes: int, launcher: str = "torchrun", **changes: Any) -> int:  # noqa: ANN401  fields of all types
    """Submit a job on several machines."""
    return rig.submit(nodes=nodes, launcher=launcher, **changes)


def formed(rig: Rig, job_id: int, workers: list[Worker]) -> Run:
    """Give each of the workers the lease of one rank of a ready job."""
    nonces = [uuid4() for _ in workers]
    rows = rig.rows(FORM, job_id, len(workers), [worker.id for worker in workers], nonces)
    tokens = [row["token"] for row in rows]
    fences = [Fence(job_id, token, nonce) for token, nonce in zip(tokens, nonces, strict=True)]
    return Run(rig, job_id, workers, fences)


def running(rig: Rig, nodes: int = 3, launcher: str = "torchrun", **changes: Any) -> Run:  # noqa: ANN401  as above
    """Submit a job, and form its run with new workers."""
    workers = [rig.worker(f"gpu-{rank}") for rank in range(nodes)]
    return formed(rig, gang(rig, nodes, launcher, **changes), workers)


def ended(run: Run, *ends: tuple[int, Reason, int | None, str | None]) -> None:
    """End members one after another, a second apart."""
    for rank, reason, code, detail in ends:
        run.rig.clock.advance(1)
        assert run.end(rank, reason, exit_code=code, detail=detail).accepted


def stop(run: Run, rank: int) -> None:
    """End a member as one that was asked to stop."""
    assert run.standing(rank) is Standing.ENDED
    run.rig.clock.advance(1)
    run.end(rank, Reason.RUN_ENDED)


def budgets(rig: Rig, job_id: int) -> tuple[int, int, int]:
    """Return what a waiting job has used of its budgets: failures, losses, preemptions."""
    counts = "SELECT failures, losses, preemptions FROM {} WHERE job_id = %s"
    query = " UNION ALL ".join(counts.format(place) for place in ("ready", "scheduled"))
    (row,) = rig.rows(query, job_id, job_id)
    return row["failures"], row["losses"], row["preemptions"]


def settled(run: Run, state: State) -> None:
    """Assert that a run is over: one place for its job, no lease, every rank's attempt once."""
    rig = run.rig
    assert rig.state(run.job_id) is state
    assert len(rig.places(run.job_id)) == 1
    assert rig.rows("SELECT FROM lease WHERE job_id = %s", run.job_id) == []
    rows = run.members()
    assert [row["rank"] for row in rows] == list(range(len(run.fences)))
    assert {row["attempt"] for row in rows} == {rig.jobs.job(run.job_id)["attempt"]}
    assert [row["worker"] for row in rows] == [worker.name for worker in run.workers]
    assert rig.rows("SELECT FROM slot WHERE job_id = %s", run.job_id) == []
