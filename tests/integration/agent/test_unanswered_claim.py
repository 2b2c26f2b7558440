"""A worker that drains before it has the answer to a claim gives its jobs back."""

from __future__ import annotations

from datetime import timedelta
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.worker import Capacity
from forge_worker.agent.claim_loop import Claims
from forge_worker.agent.leaving import Leaving
from forge_worker.agent.registration import WorkerIdentity
from forge_worker.attempt import LiveAttempts
from forge_worker.loop import Bell
from forge_worker.machine.slots import Slots
from forge_worker.queue.gateway import SqlGateway
from support.http.http_worker import machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forge_schema.model.lease import End, Ended
    from support.queue.rig import Rig

JOBS = 3


def worker(rig: Rig) -> tuple[Claims, Leaving]:
    """Make a worker that claims for `JOBS` jobs, and loses the answer."""
    gateway = SqlGateway(rig.database, name="w", ttl=timedelta(seconds=60))
    gateway.register(machine())
    claims, leaving = made_of(gateway)
    rig.database.lose("finish_and_claim")
    with pytest.raises(DatabaseUnreachable), claims.claimed(None):
        pass
    return claims, leaving


def made_of(gateway: SqlGateway) -> tuple[Claims, Leaving]:
    claims = Claims(gateway, Slots(Capacity(JOBS, 100, 100), max_jobs=JOBS), WorkerIdentity())
    none: Any = SimpleNamespace(window=None, leaving=False)
    leaving = Leaving(
        LiveAttempts(), claims, none, none, changed=Bell(), left=Event(), term_notice_s=60.0
    )
    return claims, leaving


@pytest.mark.parametrize("lost", [[], ["claimed_before"] * 4], ids=["at once", "later"])
def test_jobs_of_a_lost_answer_are_given_back_by_a_worker_that_drains(
    rig: Rig, lost: list[str]
) -> None:
    jobs = rig.submit_many(JOBS, cpus=1)
    claims, leaving = worker(rig)
    assert rig.count("lease") == JOBS
    rig.database.lose(*lost)
    leaving.drain()
    leaving.join(60)
    assert [rig.places(job) for job in jobs] == [["ready"]] * JOBS
    ended = rig.rows("SELECT reason FROM attempt")
    assert [row["reason"] for row in ended] == ["drained"] * JOBS
    rig.database.names()
    assert claims.give_back_unanswered()
    assert rig.database.names() == []


def test_jobs_that_could_not_be_given_back_are_given_back_later(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = rig.submit_many(JOBS, cpus=1)
    claims, _ = worker(rig)
    with monkeypatch.context() as patched:
        patched.setattr(SqlGateway, "finish", unreachable)
        assert not claims.give_back_unanswered()
    assert claims.give_back_unanswered()
    assert [rig.places(job) for job in jobs] == [["ready"]] * JOBS


def unreachable(_gateway: SqlGateway, _ends: Sequence[End]) -> list[Ended]:
    raise DatabaseUnreachable("it does not answer")


@pytest.mark.parametrize("waits", ["a lost answer", "a job that was just submitted", "a lease"])
def test_an_idle_worker_for_which_there_is_work_stays_and_gets_it(rig: Rig, waits: str) -> None:
    gateway = SqlGateway(rig.database, name="w", ttl=timedelta(seconds=60))
    gateway.register(machine())
    claims, leaving = made_of(gateway)
    with claims.claimed(None) as granted:
        assert granted == []
    job = rig.submit(cpus=1)
    if waits == "a lost answer":
        rig.database.lose("finish_and_claim")
        with pytest.raises(DatabaseUnreachable), claims.claimed(None):
            pass
    if waits == "a lease":
        with claims.claimed(None) as granted:
            pass
    leaving.retire("it was idle")
    assert (leaving.idle, claims.closed) == ("", False)
    with claims.claimed(None) as granted_now:
        assert [one.grant.job_id for one in granted_now or granted] == [job]


def test_an_idle_worker_leaves_unless_the_queue_does_not_answer(rig: Rig) -> None:
    gateway = SqlGateway(rig.database, name="w", ttl=timedelta(seconds=60))
    gateway.register(machine())
    claims, leaving = made_of(gateway)
    rig.submit(gpus=8)
    rig.database.lose(*["match"] * 4)
    leaving.retire("it was idle")
    assert not claims.closed
    leaving.retire("it was idle")
    assert (leaving.idle, claims.closed) == ("it was idle", True)
    gateway.disconnect(leaving.idle)
    gateway.disconnect(leaving.idle)
    row = rig.registry.worker(gateway.worker_id)
    assert (row["status"], row["condition"]["left"]) == ("offline", "it was idle")
    told = rig.rows("SELECT detail FROM event WHERE action = 'disconnected'")
    assert told == [{"detail": {"why": "it was idle"}}]


def test_a_worker_that_takes_jobs_again_gets_those_of_the_lost_answer(rig: Rig) -> None:
    jobs = rig.submit_many(JOBS, cpus=1)
    claims, _ = worker(rig)
    claims.shut()
    rig.database.lose(*["claimed_before"] * 4)
    assert not claims.give_back_unanswered()
    claims.open()
    with claims.claimed(None) as granted:
        assert [one.grant.job_id for one in granted] == jobs
        assert {one.grant.attempt for one in granted} == {1}
