"""Committed, but the caller saw a timeout: every verb takes effect once when repeated."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import stamina
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.attempt_records import (
    ArtifactRecord,
    CheckpointRecord,
    LogChunkRecord,
    MetricRecord,
)
from forge_schema.model.lease import End
from forge_schema.model.states import Command, Phase, Reason, Standing, State
from support.queue.rig import spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forge_schema.model.lease import Fence, Grant
    from support.queue.rig import Rig, Worker

SHA = "ab" * 32


@pytest.fixture(autouse=True)
def _without_pauses() -> Iterator[None]:
    with stamina.set_testing(True, attempts=4, cap=True):
        yield


def claimed(rig: Rig, **changes: object) -> tuple[Worker, Grant]:
    """Submit a job and claim it."""
    rig.submit(**changes)
    worker = rig.worker()
    return worker, worker.claim_one()


@pytest.mark.parametrize("statement", ["submit", "ensure_lane"])
def test_a_submit_is_one_job(rig: Rig, statement: str) -> None:
    rig.database.lose(statement)
    ids = rig.queue.submit([spec()] * 3)
    assert ids == [row["id"] for row in rig.rows("SELECT id FROM job ORDER BY id")]
    assert (rig.count("ready"), rig.count("audit"), rig.count("lane")) == (3, 3, 1)
    # The audit trail reads submits from the jobs.
    assert rig.count("event") == 0


def test_a_submit_of_equal_and_different_jobs_whose_answer_is_lost_is_each_once(rig: Rig) -> None:
    rig.database.lose("submit")
    same = spec()
    specs = [same, same, spec(name="b"), spec(name="c", idempotency_key="c"), same]
    ids = rig.queue.submit(specs)
    stored = rig.rows("SELECT id, name FROM job ORDER BY id")
    assert [(row["id"], row["name"]) for row in stored] == [
        (job_id, asked.name) for job_id, asked in zip(ids, specs, strict=True)
    ]
    assert rig.database.names().count("submitted_before") == 1


def test_a_submit_given_up_and_repeated_by_the_caller_is_one_job(rig: Rig) -> None:
    rig.database.lose(*["submit"] * 4)
    with pytest.raises(DatabaseUnreachable):
        rig.submit(idempotency_key="k")
    job_id = rig.submit(idempotency_key="k")
    assert (rig.count("job"), rig.places(job_id)) == (1, ["ready"])


def test_a_submit_whose_look_back_is_lost_answers_the_same_job(rig: Rig) -> None:
    first = rig.submit(idempotency_key="k")
    rig.database.lose("submitted_before", "submit")
    assert rig.submit(idempotency_key="k") == first


@pytest.mark.parametrize("limited", [False, True])
def test_a_claim_is_given_up_and_its_lease_runs_out(rig: Rig, *, limited: bool) -> None:
    rig.admin.set_queue("default", {"max_jobs": 5 if limited else None, "max_gpus": None})
    job_id = rig.submit()
    worker = rig.worker()
    rig.database.lose("finish_and_claim")
    with pytest.raises(DatabaseUnreachable):
        worker.claim()
    assert (rig.places(job_id), worker.claim()) == (["lease"], [])
    assert worker.renew().standings == {}
    rig.expire()
    assert rig.tick.run().requeued == 1
    grant = worker.claim_one()
    assert (grant.attempt, grant.losses) == (2, 1)
    assert rig.finish(grant).accepted


def test_a_repeated_claim_is_granted_the_same_jobs_and_no_others(rig: Rig) -> None:
    first, *others = rig.submit_many(3)
    worker, nonce = rig.worker(), uuid4()
    (held,) = worker.claim()
    ask: dict[str, Any] = {"count": 2, "nonce": nonce}
    rig.database.lose("finish_and_claim")
    with pytest.raises(DatabaseUnreachable):
        rig.queue.finish_and_claim([], worker.lanes, worker.free, **ask)
    ends = [End(held.fence, Reason.SUCCEEDED)]
    for _ in range(2):
        answers, grants = rig.queue.finish_and_claim(
            ends, worker.lanes, worker.free, **ask, repeated=True
        )
        assert answers[0].accepted
        assert [(grant.fence.job_id, grant.attempt) for grant in grants] == [(n, 1) for n in others]
    assert rig.state(first) == State.SUCCEEDED
    assert set(worker.renew(*grants).standings.values()) == {"ok"}
    stranger = rig.worker("stranger")
    rig.submit()
    (own,) = rig.queue.finish_and_claim([], stranger.lanes, stranger.free, **ask, repeated=True)[1]
    assert own.fence not in [grant.fence for grant in grants]


def test_a_repeated_claim_that_was_granted_nothing_or_ran_out_claims_anew(rig: Rig) -> None:
    worker, nonce = rig.worker(), uuid4()
    ask: dict[str, Any] = {"nonce": nonce, "repeated": True}
    rig.submit()
    (first,) = rig.queue.finish_and_claim([], worker.lanes, worker.free, **ask)[1]
    rig.expire()
    rig.tick.run()
    (second,) = rig.queue.finish_and_claim([], worker.lanes, worker.free, **ask)[1]
    assert (first.attempt, second.attempt, second.age_s) == (1, 2, 0)


def test_a_finish_is_accepted_once(rig: Rig) -> None:
    _, grant = claimed(rig)
    rig.database.lose("finish", "ended")
    ended = rig.finish(grant, Reason.EXIT_CODE, exit_code=3)
    assert (ended.accepted, ended.state) == (True, State.SCHEDULED)
    assert (rig.count("attempt"), rig.count("scheduled"), rig.count("outcome")) == (1, 1, 0)
    assert rig.row("SELECT failures FROM scheduled")["failures"] == 1


def test_a_finish_with_a_claim_is_accepted_when_repeated_and_the_claimed_job_runs_out(
    rig: Rig,
) -> None:
    worker, grant = claimed(rig)
    following = rig.submit()
    ends = [End(grant.fence, Reason.SUCCEEDED)]
    rig.database.lose("finish_and_claim")
    with pytest.raises(DatabaseUnreachable):
        rig.queue.finish_and_claim(ends, worker.lanes, worker.free)
    (ended,), grants = rig.queue.finish_and_claim(ends, worker.lanes, worker.free)
    assert (ended.accepted, ended.state, grants) == (True, State.SUCCEEDED, [])
    assert (rig.count("attempt"), rig.places(following)) == (1, ["lease"])
    rig.expire()
    rig.tick.run()
    assert worker.claim_one().fence.job_id == following


def test_a_job_that_came_back_and_was_claimed_again_runs_once_more(rig: Rig) -> None:
    worker, grant = claimed(rig)
    ends = [End(grant.fence, Reason.PREEMPTED)]
    rig.database.lose("finish_and_claim")
    with pytest.raises(DatabaseUnreachable):
        rig.queue.finish_and_claim(ends, worker.lanes, worker.free)
    (ended,), grants = rig.queue.finish_and_claim(ends, worker.lanes, worker.free)
    assert (ended.accepted, ended.reason, grants) == (True, Reason.PREEMPTED, [])
    # The state is that of now: the job was claimed in the transaction of its end.
    assert ended.state == rig.state(grant.fence.job_id) == State.RUNNING
    assert rig.row("SELECT attempt, preemptions FROM lease") == {"attempt": 2, "preemptions": 1}


def test_a_release_is_charged_once(rig: Rig) -> None:
    worker, grant = claimed(rig)
    rig.database.lose("finish")
    assert rig.queue.release(grant.fence).state == State.READY
    assert worker.claim_one().preemptions == 1


def test_a_renewal_answers_the_same(rig: Rig) -> None:
    worker, grant = claimed(rig)
    rig.clock.advance(60)
    rig.database.lose("renew")
    assert worker.renew(grant).standings == {grant.fence: Standing.OK}
    rig.clock.advance(100)
    assert rig.tick.run().requeued == 0


def test_a_report_is_recorded(rig: Rig) -> None:
    _, grant = claimed(rig, timeout_s=60)
    rig.database.lose("report")
    assert rig.queue.report(grant.fence, Phase.RUNNING) == Standing.OK
    assert rig.jobs.job(grant.fence.job_id)["phase"] == Phase.RUNNING


@pytest.mark.parametrize("where", ["ready", "scheduled", "lease"])
def test_a_cancel_answers_the_same_and_is_told_once(rig: Rig, where: str) -> None:
    job_id = rig.submit(delay_s=60 if where == "scheduled" else 0)
    if where == "lease":
        rig.worker().claim_one()
    rig.database.lose("cancel")
    state = State.RUNNING if where == "lease" else State.CANCELLED
    assert rig.queue.cancel(job_id) == state
    assert len(rig.actions(job_id)) == 2
    assert len(rig.places(job_id)) == 1


def test_a_preemption_is_asked_once(rig: Rig) -> None:
    _, grant = claimed(rig)
    rig.database.lose("preempt")
    assert rig.queue.preempt(grant.fence.job_id)
    assert rig.actions(grant.fence.job_id) == ["submitted", "asked to preempt"]


def test_a_new_agent_of_a_running_job_is_recorded_once(rig: Rig) -> None:
    _, grant = claimed(rig)
    job_id = grant.fence.job_id
    for boot in (uuid4(), uuid4()):
        rig.database.lose("replaced")
        for _ in range(2):
            assert rig.queue.report(grant.fence, Phase.RUNNING, replaced_by=boot) == Standing.OK
    assert rig.actions(job_id) == ["submitted", "agent replaced", "agent replaced"]
    rig.finish(grant)
    assert rig.queue.report(grant.fence, Phase.RUNNING, replaced_by=uuid4()) == Standing.LOST
    assert rig.actions(job_id).count("agent replaced") == 2


def test_a_retry_is_granted_once(rig: Rig) -> None:
    _, grant = claimed(rig, max_failures=0)
    rig.finish(grant, Reason.EXIT_CODE)
    rig.database.lose("retry")
    rig.queue.retry(grant.fence.job_id)
    assert rig.places(grant.fence.job_id) == ["ready"]
    assert rig.actions(grant.fence.job_id) == ["submitted", "retried"]


def test_a_tick_moves_each_once(rig: Rig) -> None:
    lost, late, due = rig.submit(), rig.submit(timeout_s=10), rig.submit(delay_s=5)
    worker = rig.worker()
    first, second = worker.claim(count=2)
    rig.queue.report(second.fence, Phase.RUNNING)
    rig.clock.advance(100)
    worker.renew(second)
    rig.clock.advance(100)
    rig.database.lose("expired", "finish", "promote", "overdue", "offline", "reap")
    rig.database.lose("make_partitions")
    rig.tick.run()
    assert first.fence.job_id == lost
    assert [rig.places(job_id) for job_id in (lost, late, due)] == [["ready"], ["lease"], ["ready"]]
    assert rig.count("attempt") == 1
    assert rig.actions(due) == ["submitted", "promoted"]
    assert rig.actions(late) == ["submitted", "asked to time out"]


WRITES: dict[str, Callable[[Rig, Fence], bool]] = {
    "log_chunk": lambda rig, fence: rig.records.add_log_chunk(
        fence, LogChunkRecord(0, "k", 0, 5, SHA)
    ),
    "checkpoint": lambda rig, fence: rig.records.add_checkpoint(
        fence, CheckpointRecord(1, "k", 2, 10)
    ),
    "artifact": lambda rig, fence: rig.records.add_artifacts(
        fence, [ArtifactRecord("p", "k", 3, SHA)]
    ),
    "metric": lambda rig, fence: rig.records.add_metrics(fence, [MetricRecord(0, 1.0, {"a": 1})]),
}
STATEMENTS = {"log_chunk": "add_log_chunk", "checkpoint": "add_checkpoint"}
STATEMENTS |= {"artifact": "add_artifacts", "metric": "add_metrics"}


@pytest.mark.parametrize("table", WRITES)
def test_a_record_is_kept_once(rig: Rig, table: str) -> None:
    _, grant = claimed(rig)
    rig.database.lose(STATEMENTS[table])
    assert WRITES[table](rig, grant.fence)
    assert (rig.database.losing, rig.count(table)) == ([], 1)


def test_a_registration_is_one_worker(rig: Rig) -> None:
    rig.database.lose("register")
    worker = rig.worker()
    assert rig.count("worker") == 1
    rig.database.lose("disconnect")
    rig.registry.disconnect(worker.id, worker.machine.boot_id)
    assert [row["status"] for row in rig.registry.workers()] == ["offline"]


def test_what_an_admin_sets_is_set_when_repeated(rig: Rig) -> None:
    worker = rig.worker()
    rig.database.lose("command")
    rig.registry.command(worker.id, Command.DRAIN)
    for act in (
        partial(rig.admin.set_queue, "default", {"max_jobs": 2}),
        partial(rig.admin.limit_owner, "ann", OwnerSettings(max_jobs=3)),
        partial(rig.admin.set_queue, "default", {"paused": True}),
    ):
        rig.database.lose("transaction")
        with pytest.raises(DatabaseUnreachable):
            act()
        act()
    assert rig.database.losing == []
    assert rig.row("SELECT * FROM queue") == {
        "name": "default",
        "paused": True,
        "max_jobs": 2,
        "max_gpus": None,
        "preemption": "never",
        "preempts_after_s": 60,
        "most_preempted": 4,
        "yields_for": None,
        "yields_to": None,
        "yields_until": None,
        "guaranteed_gpus": None,
    }
    assert rig.row("SELECT max_jobs FROM owner_quota")["max_jobs"] == 3
    assert worker.renew().command == "drain"
