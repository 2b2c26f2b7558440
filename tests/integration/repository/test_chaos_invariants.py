"""Every invariant of a chaos run can be broken, and is reported when it is."""

from __future__ import annotations

import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from chaos.check import (
    cron,
    ends,
    leases,
    limits,
    objects,
    programs,
    promises,
    reports,
    rest,
    runs,
    sums,
    urgency,
)
from chaos.check.invariants import INVARIANTS, violations
from chaos.evidence.history import History
from forge_schema.model.lease import End, Fence, Usage
from forge_schema.model.states import Reason, State
from forge_worker.agent.outbox import FILE, Spool
from support.engine.images import BASE_IMAGE
from support.gangs.runs import formed, gang, running, settled, stop
from support.queue.chaos_script import Script
from support.store.storage import use_credentials
from support.workers.runners import require_docker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.check.violation import Invariant
    from support.queue.rig import Rig
    from support.store.storage import Bucket

# A success is a row of both tables, so that an attempt and its outcome can disagree.
APART = (
    "INSERT INTO attempt_row SELECT * FROM attempt",
    (
        "UPDATE outcome SET worker_id = NULL, lane_id = NULL, ready_at = NULL, claimed_at = NULL,"
        " devices = NULL, gpu_seconds = NULL"
    ),
)
ANOTHER = """
    INSERT INTO attempt_row SELECT forged.* FROM attempt_row AS one, jsonb_populate_record(
        one, jsonb_build_object('attempt', 2, 'token', one.token + 10000) || '{changes}'
    ) AS forged
    WHERE one.job_id = %(job_id)s
"""


# A job with the lease of one rank only.
OF_A_GANG = "UPDATE job SET spec = spec || '{\"nodes\": 2}' WHERE id = %(job_id)s"


def another(changes: str = "{}") -> str:
    """Give a job one more attempt: its first one, except for these columns."""
    return ANOTHER.replace("{changes}", changes)


def scheduled(schedule: int, due: str) -> str:
    """Have a job look as if a schedule had submitted it for this time."""
    key = f"schedule:{schedule}:{due}Z:forged"
    return f"UPDATE job SET idempotency_key = '{key}' WHERE id = %(job_id)s"


def changed(
    schedule: int, at: str, *, next_at: str, last: str | None = None, paused: bool = False
) -> str:
    """Have the witness note a change of a schedule whose last job is this one."""
    last_due_at = f"'{last}'" if last else "NULL"
    return (
        ";INSERT INTO chaos.schedule_change"
        " (at, gone, schedule_id, name, paused, next_at, last_due_at, last_job_id) VALUES"
        f" ('{at}', false, {schedule}, 'every', {paused}, '{next_at}', {last_due_at}, %(job_id)s)"
    )


def event(action: str, detail: str, at: str = "2030-12-31") -> str:
    """Have the audit trail tell something of the job."""
    return (
        "INSERT INTO event (at, actor, action, job_id, detail)"
        f" VALUES ('{at}', 'sweeper', '{action}', %(job_id)s, '{detail}')"
    )


OF_NO_JOB = [urgency.HALF_A_FLEET.sentence]
DISPLACED = '{"attempt": 1, "by": 1000, "own": 0, "priority": 5}'

# What breaks an invariant for one job.
FORGED: tuple[tuple[Invariant, str], ...] = (
    (promises.ENDS, "DELETE FROM outcome WHERE job_id = %(job_id)s"),
    (
        promises.ONE_PER_KEY,
        "UPDATE job SET idempotency_key = 'other' || id WHERE id = %(job_id)s",
    ),
    (
        promises.STAYS_ENDED,
        "UPDATE outcome SET state = 'failed', reason = 'oom' WHERE job_id = %(job_id)s",
    ),
    (
        promises.CANCELS,
        "UPDATE outcome SET state = 'failed', reason = 'oom' WHERE job_id = %(job_id)s",
    ),
    (
        leases.RISES,
        another('{"token": 0, "claimed_at": "2032-01-01", "finished_at": "2032-01-02"}'),
    ),
    (leases.ONE_LIVE, another('{"claimed_at": "2030-01-01", "finished_at": "2031-12-01"}')),
    (
        leases.ONE_PER_GPU,
        "UPDATE attempt_row SET devices = '{GPU-1}', started_at = '2030-01-01'"
        " WHERE job_id = %(job_id)s;" + another(),
    ),
    (leases.ALL_KEPT, "DELETE FROM attempt_row WHERE job_id = %(job_id)s"),
    (
        leases.EXPIRED_FIRST,
        (
            "UPDATE attempt_row SET reason = 'worker_lost', detail = 'the lease ran out'"
            " WHERE job_id = %(job_id)s"
        ),
    ),
    (
        leases.RENEWED_BY_HOLDER,
        "UPDATE chaos.change SET verb = 'renewed', by_holder = false WHERE job_id = %(job_id)s",
    ),
    (
        leases.ENDED_BY_HOLDER,
        "UPDATE chaos.change SET connection = 'idle' WHERE job_id = %(job_id)s",
    ),
    (runs.RANKS, OF_A_GANG),
    (
        runs.RANKS,
        OF_A_GANG + ";UPDATE chaos.change SET nodes = 2 WHERE job_id = %(job_id)s",
    ),
    (
        runs.OUTLIVED,
        OF_A_GANG + ";INSERT INTO lease (job_id, rank, nodes, worker_id, lane_id, nice, attempt,"
        " failures, losses, preemptions, ready_at, claimed_at, expires_at)"
        " SELECT job_id, 1, 2, worker_id, lane_id, 0,"
        " attempt, 0, 0, 0, ready_at, claimed_at, claimed_at + '1 s' FROM attempt"
        " WHERE job_id = %(job_id)s",
    ),
    (
        runs.OUTLIVED,
        OF_A_GANG + ";" + another('{"claimed_at": "2030-01-01", "finished_at": "2031-12-01"}'),
    ),
    (
        runs.ONE_OUTCOME,
        OF_A_GANG + ";UPDATE outcome SET token = token + 10000 WHERE job_id = %(job_id)s",
    ),
    (
        runs.ONE_OUTCOME,
        OF_A_GANG + ";" + another('{"attempt": 1, "rank": 1, "reason": "oom"}'),
    ),
    (
        limits.APPROVED_FIRST,
        (
            "INSERT INTO event (at, actor, action, job_id)"
            " SELECT submitted_at, owner, 'asked for approval', id FROM job WHERE id = %(job_id)s"
        ),
    ),
    (
        limits.WITHIN_LIMITS,
        "INSERT INTO lane (queue, owner, shape_id) SELECT 'narrow', owner, shape_id FROM lane"
        " WHERE id = (SELECT lane_id FROM job WHERE id = %(job_id)s);"
        "UPDATE job SET lane_id = (SELECT id FROM lane WHERE queue = 'narrow')"
        " WHERE id = %(job_id)s;"
        + another('{"claimed_at": "2030-01-01", "finished_at": "2031-12-01"}'),
    ),
    (
        limits.SLOTS_GIVEN_BACK,
        "INSERT INTO slot (kind, name, n, job_id) VALUES ('owner_jobs', 'ann', 1, %(job_id)s)",
    ),
    (cron.NOT_EARLY, scheduled(1, "2040-01-01T00:00:00")),
    (
        cron.ONCE,
        # The first job has its own forgery, which does not depend on its key.
        (
            "UPDATE job SET idempotency_key = 'schedule:2:2031-01-01T00:00:00Z:' || id"
            " WHERE id IN (%(job_id)s, (SELECT min(id) FROM job))"
        ),
    ),
    (
        cron.IN_FORCE,
        scheduled(3, "2031-01-01T00:00:00")
        + changed(3, "2030-12-31 23:54:30", next_at="2030-12-31 23:55")
        + changed(3, "2030-12-31 23:54:40", next_at="2031-01-01 00:00")
        + changed(3, "2030-12-31 23:54:50", next_at="2031-01-01 00:00", paused=True),
    ),
    (
        cron.EACH_TIME,
        "SELECT"
        + changed(4, "2031-01-01 00:00:30", next_at="2031-01-01 00:01")
        + changed(4, "2031-01-01 00:01:01", next_at="2031-01-01 00:02"),
    ),
    # It was moved on as if it had submitted a job.
    (
        cron.EACH_TIME,
        "SELECT"
        + changed(6, "2031-01-01 00:00:30", next_at="2031-01-01 00:01")
        + changed(6, "2031-01-01 00:01:01", next_at="2031-01-01 00:02", last="2031-01-01 00:01"),
    ),
    (
        cron.ENDS,
        scheduled(5, "2031-01-01T00:00:00") + ";DELETE FROM outcome WHERE job_id = %(job_id)s",
    ),
    (ends.ONE_ACCEPTED, another()),
    (
        ends.NOT_BLAMED,
        "UPDATE attempt_row SET reason = 'exit_code', exit_code = 137 WHERE job_id = %(job_id)s",
    ),
    (
        ends.LAST_GRANTED,
        another('{"claimed_at": "2032-01-01", "finished_at": "2032-01-02", "reason": "oom"}'),
    ),
    (ends.NO_REOPENING, another('{"reason": "oom"}')),
    (
        ends.WITHIN_BUDGET,
        "UPDATE job SET max_losses = 0 WHERE id = %(job_id)s;"
        "UPDATE attempt_row SET reason = 'worker_lost' WHERE job_id = %(job_id)s;" + another(),
    ),
    (
        ends.DEAD_BEYOND,
        "UPDATE outcome SET state = 'dead', reason = 'oom' WHERE job_id = %(job_id)s",
    ),
    (ends.CHARGED, "UPDATE chaos.change SET spent = '{0, 1, 0}' WHERE job_id = %(job_id)s"),
    (
        ends.CANCELLED_RESTS,
        (
            "INSERT INTO event (at, actor, action, job_id)"
            " VALUES ('2030-12-31', 'user:ann', 'asked to cancel', %(job_id)s)"
        ),
    ),
    (
        ends.ASKED_ENDS,
        (
            "INSERT INTO lease (job_id, rank, worker_id, lane_id, nice, attempt, failures, losses,"
            " preemptions, ready_at, claimed_at, expires_at, asked)"
            " SELECT job_id, 0, worker_id, lane_id, 0,"
            " attempt, 0, 0, 0, ready_at, claimed_at, claimed_at + '1 s', 'cancelled' FROM attempt"
            " WHERE job_id = %(job_id)s"
        ),
    ),
    (ends.NUMBERED, "UPDATE attempt_row SET attempt = 3 WHERE job_id = %(job_id)s"),
    (ends.NUMBERED, another('{"attempt": 1, "finished_at": "2032-01-02"}')),
    (
        sums.ONE_PLACE,
        (
            "INSERT INTO scheduled (job_id, lane_id, nice, run_at)"
            " SELECT id, lane_id, nice, submitted_at FROM job WHERE id = %(job_id)s"
        ),
    ),
    (sums.EVENTS, "UPDATE job SET submitted_by = NULL WHERE id = %(job_id)s"),
    (objects.OWN_PREFIX, "UPDATE artifact SET token = token + 10000 WHERE job_id = %(job_id)s"),
    (objects.CONTIGUOUS, "UPDATE log_chunk SET start = 3 WHERE job_id = %(job_id)s"),
    (objects.ACCEPTED_WROTE, "DELETE FROM artifact WHERE job_id = %(job_id)s"),
    (
        objects.RESTORED,
        "UPDATE attempt_row SET reason = 'exit_code', exit_code = 99 WHERE job_id = %(job_id)s",
    ),
    (
        objects.SOUND,
        "UPDATE artifact SET sha256 = repeat('0', 64) WHERE job_id = %(job_id)s",
    ),
    (
        programs.NEVER_BACK,
        (
            "INSERT INTO chaos.stored (job_id, token, attempt, number, step)"
            " VALUES (%(job_id)s, 1, 0, 0, 4)"
        ),
    ),
    (
        programs.STOP_HEARD,
        "UPDATE attempt_row SET reason = 'preempted' WHERE job_id = %(job_id)s",
    ),
    (
        programs.TORN,
        (
            "UPDATE attempt_row SET reason = 'exit_code', exit_code = 98 WHERE job_id = %(job_id)s;"
            "UPDATE outcome SET state = 'dead', reason = 'exit_code' WHERE job_id = %(job_id)s"
        ),
    ),
    (
        programs.REMOVED,
        "UPDATE attempt_row SET reason = 'exit_code', exit_code = 97 WHERE job_id = %(job_id)s",
    ),
    (
        programs.WHOLE,
        "UPDATE attempt_row SET reason = 'exit_code', exit_code = 96 WHERE job_id = %(job_id)s",
    ),
    (urgency.HIGHER_ONLY, event("displaced", DISPLACED.replace("5", "0"))),
    (
        urgency.ONCE_PER_ATTEMPT,
        event("displaced", DISPLACED) + ";" + event("displaced", DISPLACED),
    ),
    (
        urgency.COSTS_NO_RETRY,
        event("displaced", DISPLACED)
        + ";UPDATE attempt_row SET reason = 'exit_code', exit_code = 1 WHERE job_id = %(job_id)s",
    ),
    (
        urgency.BUDGET_HOLDS,
        event(
            "owner quota set", '{"owner": "ann", "gpu_hours_per_month": 0, "when_spent": "hold"}'
        ),
    ),
    (
        rest.NO_LEASE,
        (
            "INSERT INTO lease (job_id, rank, worker_id, lane_id, nice, attempt, failures, losses,"
            " preemptions, ready_at, claimed_at, expires_at)"
            " SELECT job_id, 0, worker_id, lane_id, 0,"
            " attempt, 0, 0, 0, ready_at, claimed_at, claimed_at + '1 s' FROM attempt"
            " WHERE job_id = %(job_id)s"
        ),
    ),
)


@pytest.fixture
def script(rig: Rig, tmp_path: Path) -> Iterator[Script]:
    history = History(tmp_path / "history.jsonl")
    (tmp_path / "store").mkdir()
    with Script(rig, (tmp_path / "store").as_uri(), history) as script:
        yield script
    history.close()


def test_each_forgery_is_told_of_its_own_job(script: Script) -> None:
    jobs = dict(zip(script.run_many(len(FORGED)), FORGED, strict=True))
    path = script.history.path
    assert violations(script.rig.url, script.store.url, path) == []
    for job_id, (invariant, _) in jobs.items():
        if invariant is promises.CANCELS:
            script.history.note("cancelled", job_id=job_id, state="running")
    script.history.note("scheduled", name="every", every_s=60, first_s=0)
    script.history.note("limited", of="queue", name="narrow", max_jobs=0)
    with psycopg.connect(script.rig.url) as connection:
        connection.execute("SET session_replication_role = replica")
        for part in APART:
            connection.execute(part)
        for job_id, (_, forgery) in jobs.items():
            for part in forgery.split(";"):
                connection.execute(part.encode(), {"job_id": job_id})
        connection.execute("INSERT INTO chaos.suspicion VALUES ('2031-01-01', 2, 3)")
    told = {
        (one.job_id, one.invariant) for one in violations(script.rig.url, script.store.url, path)
    }
    forged = {(job_id, invariant.sentence) for job_id, (invariant, _) in jobs.items()}
    assert forged - told == set()
    assert {sums.REPORTS.sentence, *OF_NO_JOB} <= {sentence for _, sentence in told}


@pytest.mark.parametrize("launcher", ["torchrun", "ray"])
def test_runs_on_several_machines_break_no_invariant(script: Script, launcher: str) -> None:
    rig = script.rig
    run = running(rig, launcher=launcher, timeout_s=500, backoff_s=0)
    run.start()
    rig.clock.advance(rig.queue.ttl.total_seconds() - 1)
    for rank in (0, 2):
        run.standing(rank)
    rig.clock.advance(2)
    assert rig.tick.requeue() == 1
    for rank in (0, 2):
        stop(run, rank)
    # Two fail at once, then one is preempted, and then all succeed.
    for order in (
        [(2, Reason.OOM), (1, Reason.EXIT_CODE), (0, Reason.RUN_ENDED)],
        [(1, Reason.PREEMPTED), (0, Reason.RUN_ENDED), (2, Reason.EXIT_CODE)],
        [(0, Reason.SUCCEEDED), (1, Reason.SUCCEEDED), (2, Reason.SUCCEEDED)],
    ):
        rig.clock.advance(1)
        run = formed(rig, run.job_id, run.workers)
        run.start()
        for rank, reason in order:
            rig.clock.advance(1)
            run.end(rank, reason, exit_code=1, usage=Usage(gpu_seconds=2.0, cost=0.5))
    settled(run, State.SUCCEEDED)
    broken = violations(rig.url, script.store.url, script.history.path)
    assert [(one.invariant, one.says) for one in broken] == []


def test_a_run_that_goes_on_with_more_machines_breaks_no_invariant(script: Script) -> None:
    rig = script.rig
    workers = [rig.worker(f"gpu-{rank}") for rank in range(3)]
    run = formed(rig, gang(rig, 2, max_nodes=3), workers[:2])
    run.start()
    for rank in range(2):
        rig.clock.advance(1)
        run.end(rank, Reason.RUN_ENDED)
    run = formed(rig, run.job_id, workers)
    run.start()
    for rank in range(3):
        rig.clock.advance(1)
        run.end(rank)
    settled(run, State.SUCCEEDED)
    broken = violations(rig.url, script.store.url, script.history.path)
    assert [(one.invariant, one.says) for one in broken] == []


def test_a_report_that_counts_wrongly_is_told(script: Script) -> None:
    script.run_many(3)
    with psycopg.connect(script.rig.url, autocommit=True) as connection:
        told = connection.execute("SELECT pg_get_viewdef('queue_wait'::regclass)").fetchone()
        wrong = str(told and told[0]).replace("count(*) AS", "count(*) + 1 AS")
        connection.execute(f"CREATE OR REPLACE VIEW queue_wait AS {wrong}".encode())
    (found,) = violations(script.rig.url, script.store.url, script.history.path)
    assert (found.invariant, found.says[:11]) == (reports.AS_COMPUTED.sentence, "queue_wait:")


@contextmanager
def left_over(script: Script, folder: Path) -> Iterator[None]:
    """Leave a folder, a result, a process below the folder, and a transaction."""
    (folder / "jobs" / "one").mkdir(parents=True)
    Spool(folder / FILE, 1).put(End(Fence(1, 1, uuid.uuid4()), Reason.SUCCEEDED))
    script.history.note("folder", path=str(folder))
    forgotten = subprocess.Popen([sys.executable, "-c", "input()"], cwd=folder, stdin=-1)
    with psycopg.connect(script.rig.url) as connection, forgotten:
        connection.execute("SELECT 1")
        yield
        forgotten.kill()


def test_what_is_left_at_rest_is_told(
    script: Script, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_docker()
    use_credentials(monkeypatch)
    path = script.history.path
    label = f"forge-chaos-test={uuid.uuid4().hex}"
    made = ["docker", "create", "--label", label, BASE_IMAGE, "true"]
    container = subprocess.run(made, capture_output=True, text=True, check=True).stdout.strip()
    bucket.client.create_multipart_upload(Bucket=bucket.name, Key="forge/jobs/1/big")
    try:
        script.history.note("engine", url="unix:///var/run/docker.sock", labels=[label])
        with left_over(script, tmp_path / "worker"):
            found = violations(script.rig.url, bucket.url(), path)
    finally:
        subprocess.run(["docker", "rm", container], capture_output=True, check=True)
    told = {one.invariant for one in found}
    assert told == {one.sentence for one in rest.REST} - {rest.NO_LEASE.sentence}
    # The folder and its contents are still there, the rest is gone.
    left = {one.invariant for one in violations(script.rig.url, script.store.url, path)}
    assert left == {one.sentence for one in rest.REST if one in rest.ON_DISK}


def test_every_invariant_is_broken_here() -> None:
    broken = {invariant.sentence for invariant, _ in FORGED} | {one.sentence for one in rest.REST}
    broken |= {sums.REPORTS.sentence, reports.AS_COMPUTED.sentence, *OF_NO_JOB}
    sentences = [one.sentence for one in INVARIANTS]
    assert sorted(sentences) == sorted(
        {*broken, sums.REPORTS.sentence, reports.AS_COMPUTED.sentence}
    )
