"""A success is one row, also for a version before that writes two, and for what it left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from forge_schema.database.migrate import upgrade
from forge_schema.model.lease import End
from forge_schema.model.states import Reason

if TYPE_CHECKING:
    from support.queue.rig import Rig

# What both statements of the version before do with a success.
TWO_ROWS = """
    PREPARE two_rows (bigint) AS
    WITH done AS (
        SELECT $1 AS job_id, 1 AS attempt, 0 AS rank, $1 AS token, gen_random_uuid() AS nonce,
            now() AS now
    ),
    accepted AS (
        INSERT INTO outcome (job_id, state, reason, attempt, token, nonce, exit_code, finished_at)
        SELECT job_id, 'succeeded', 'succeeded', attempt, token, nonce, 0, now FROM done
    ),
    history AS (
        INSERT INTO attempt (
            job_id, attempt, rank, finished_at, token, nonce, worker_id, lane_id, ready_at,
            claimed_at, started_at, reason, exit_code, devices, gpu_seconds, energy_j, cost,
            cpu_seconds, peak_memory_mb, peak_vram_mb
        )
        SELECT
            job_id, attempt, rank, now, token, nonce, 7, 1, now, now, now, 'succeeded', 0,
            ARRAY['GPU-1'], 8, 9, 10, 11, 12, 13
        FROM done
    )
    SELECT job_id FROM done
"""
TOLD = """
    SELECT worker_id, lane_id, reason::text, exit_code, devices, gpu_seconds, energy_j, cost,
        cpu_seconds, peak_memory_mb, peak_vram_mb
    FROM attempt WHERE job_id = %s
"""


def test_a_worker_of_the_version_before_goes_on_over_the_upgrade(empty_database_url: str) -> None:
    upgrade(empty_database_url, "0025")
    with psycopg.connect(empty_database_url, autocommit=True) as old:
        old.execute(TWO_ROWS.encode())
        # Today's triggers expect today's columns.
        old.execute("SET session_replication_role = replica")
        old.execute("EXECUTE two_rows (1)")
        old.execute("SET session_replication_role = origin")
        before = old.execute(TOLD, [1]).fetchall()
        upgrade(empty_database_url)
        old.execute("EXECUTE two_rows (2)")
        assert old.execute(TOLD, [1]).fetchall() == old.execute(TOLD, [2]).fetchall() == before
        homes = old.execute("SELECT DISTINCT tableoid::regclass::text FROM attempt_row").fetchall()
        month = old.execute(
            "SELECT to_char(now() AT TIME ZONE 'UTC', '\"attempt_row_\"YYYY_MM')"
        ).fetchall()
    assert len(before) == 1
    assert homes == month


@pytest.mark.parametrize("claiming", [True, False])
def test_a_success_is_one_row(rig: Rig, claiming: bool) -> None:  # noqa: FBT001 - a parameter
    rig.submit()
    worker = rig.worker()
    grant = worker.claim_one()
    if claiming:
        end = End(grant.fence, Reason.SUCCEEDED)
        rig.queue.finish_and_claim([end], worker.lanes, worker.free)
    else:
        rig.finish(grant)
    assert [rig.count(table) for table in ("outcome", "attempt_row", "attempt")] == [1, 0, 1]
    (told,) = rig.jobs.attempts(grant.fence.job_id)
    assert (told["worker"], told["attempt"], told["rank"]) == ("w", 1, 0)
    assert told["accepted"]


def test_the_last_of_several_attempts_is_the_outcome(rig: Rig) -> None:
    job_id = rig.submit()
    worker = rig.worker()
    rig.finish(worker.claim_one(), Reason.PREEMPTED)
    rig.finish(worker.claim_one())
    assert [rig.count(table) for table in ("outcome", "attempt_row")] == [1, 1]
    told = [(row["attempt"], row["reason"], row["accepted"]) for row in rig.jobs.attempts(job_id)]
    assert told == [(1, "preempted", False), (2, "succeeded", True)]


def test_a_report_on_interruptions_does_not_look_at_outcomes(rig: Rig) -> None:
    plan = rig.rows("EXPLAIN SELECT * FROM attempt WHERE reason = 'preempted'")
    assert "outcome" not in str(plan)
    assert "attempt_row" in str(plan)


def test_a_success_and_a_failure_that_end_together_both_release_what_waits(rig: Rig) -> None:
    needed = rig.submit_many(2)
    waiting = [rig.submit(after_any=[job_id]) for job_id in needed]
    one, other = rig.worker().claim(2)
    ends = [End(one.fence, Reason.SUCCEEDED), End(other.fence, Reason.IMAGE_MISSING)]
    assert all(ended.accepted for ended in rig.queue.finish(ends))
    assert [rig.places(job_id) for job_id in waiting] == [["ready"], ["ready"]]
