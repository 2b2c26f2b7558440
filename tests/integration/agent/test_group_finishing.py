"""Ends that arrive while another's round trip is under way share the next one."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from forge_schema.database.pool import Database
from forge_schema.model.lease import End, Ended
from forge_schema.model.states import Reason
from forge_schema.model.worker import Capacity, Machine
from forge_worker.agent.claim_loop import Claims, EndNotTaken, Granted
from forge_worker.agent.registration import WorkerIdentity
from forge_worker.machine.slots import Slots
from forge_worker.queue.gateway import SqlGateway
from psycopg.errors import NotNullViolation, UniqueViolation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig
    from support.waiting import Eventually

    Exchanged = Future[tuple[Ended, list[Granted]]]

JOBS = 6
NOTE: dict[str, Any] = {
    "actor": "a",
    "action": "x",
    "job_id": None,
    "worker_id": None,
    "detail": None,
}


class Slow(SqlGateway):
    """Answers the first end only once `may` is set; then it raises `broken`, if that is set."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, name="w", ttl=timedelta(seconds=60))
        self.trips: list[int] = []
        self.asked, self.may = Event(), Event()
        self.broken: Exception | None = None

    def finish_and_claim(
        self, ends: Sequence[End], free: Capacity, count: int
    ) -> tuple[list[Ended], list[Grant]]:
        if ends:
            self.trips.append(len(ends))
            if not self.asked.is_set():
                self.asked.set()
                assert self.may.wait(60)
            elif self.broken:
                raise self.broken
        return super().finish_and_claim(ends, free, count)


@dataclass
class Desk:
    """A worker that runs nothing: its gateway, its claims, and the ends of the jobs it holds."""

    gateway: Slow
    claims: Claims
    slots: Slots
    ends: list[End]
    threads: ThreadPoolExecutor

    def exchange(self, ends: list[End], eventually: Eventually) -> list[Exchanged]:
        """Report the first end, and the others while its round trip is under way."""
        first = self.threads.submit(self.claims.exchange, ends[0])
        assert self.gateway.asked.wait(60)
        others = [self.threads.submit(self.claims.exchange, end) for end in ends[1:]]
        eventually(lambda: self.claims.waiting == len(others))
        self.gateway.may.set()
        return [first, *others]


@contextmanager
def desk(rig: Rig) -> Iterator[Desk]:
    with Database(rig.url) as database, ThreadPoolExecutor(JOBS) as threads:
        gateway = Slow(database)
        gateway.register(Machine(uuid4(), cpus=JOBS, memory_mb=100, disk_mb=100))
        slots = Slots(Capacity(JOBS, 100, 100), max_jobs=64)
        claims = Claims(gateway, slots, WorkerIdentity())
        with claims.claimed(None) as granted:
            ends = [End(one.grant.fence, Reason.SUCCEEDED, 0) for one in granted]
        assert len(ends) == JOBS
        yield Desk(gateway, claims, slots, ends, threads)


@pytest.fixture
def made(rig: Rig) -> Iterator[Desk]:
    for _ in range(3 * JOBS):
        rig.submit(cpus=1)
    with desk(rig) as opened:
        yield opened


def test_ends_that_come_meanwhile_go_together_and_each_caller_gets_a_job(
    rig: Rig, made: Desk, eventually: Eventually
) -> None:
    answers = [told.result() for told in made.exchange(made.ends, eventually)]
    assert made.gateway.trips == [1, JOBS - 1]
    assert all(ended.accepted for ended, _ in answers)
    assert [rig.state(end.fence.job_id) for end in made.ends] == ["succeeded"] * JOBS
    assert [len(granted) for _, granted in answers] == [1] * JOBS
    granted = {one.grant.fence.token for _, its in answers for one in its}
    assert set(made.slots.lent) == granted
    assert len(granted) == JOBS


def test_ends_of_a_round_trip_that_failed_may_be_reported_one_by_one(
    made: Desk, eventually: Eventually
) -> None:
    made.gateway.broken = RuntimeError("one of these is no good")
    first, *others = made.exchange(made.ends, eventually)
    assert first.result()[0].accepted
    for told in others:
        with pytest.raises(EndNotTaken, match="one of these is no good"):
            told.result()
    assert made.slots.jobs == JOBS
    assert all(made.gateway.finish([end])[0].accepted for end in made.ends[1:])


def test_two_attempts_of_one_job_do_not_go_together(made: Desk, eventually: Eventually) -> None:
    first, second, *_ = made.ends
    before = replace(second, fence=replace(second.fence, token=second.fence.token + 1000))
    told: list[Any] = made.exchange([first, before, second], eventually)
    assert [one.result()[0].accepted for one in told] == [True, False, True]
    assert made.gateway.trips == [1, 1, 1]


REASONS = [
    Reason.SUCCEEDED,
    Reason.EXIT_CODE,
    Reason.SUCCEEDED,
    Reason.PREEMPTED,
    Reason.TIMEOUT,
    Reason.START_FAILED,
]


def mixed(made: Desk) -> list[End]:
    """Return the ends of the desk's jobs, one for each reason."""
    return [
        End(end.fence, reason, 1 if reason is Reason.EXIT_CODE else None, f"why {reason.value}")
        for end, reason in zip(made.ends, REASONS, strict=True)
    ]


def test_ends_of_all_reasons_go_together_in_one_transaction(
    rig: Rig, made: Desk, eventually: Eventually
) -> None:
    ends = mixed(made)
    answers = [told.result() for told in made.exchange(ends, eventually)]
    assert made.gateway.trips == [1, JOBS - 1]
    assert all(ended.accepted for ended, _ in answers)
    rows = rig.rows(
        "SELECT job_id, reason, detail, xmin FROM attempt_row"
        " UNION ALL SELECT job_id, reason, detail, xmin FROM outcome WHERE worker_id IS NOT NULL"
        " ORDER BY job_id"
    )
    assert [(row["reason"], row["detail"]) for row in rows] == [
        (end.reason.value, end.detail) for end in sorted(ends, key=lambda end: end.fence.job_id)
    ]
    claimed = rig.rows("SELECT job_id, xmin FROM lease")
    assert len({row["xmin"] for row in rows}) == 2
    assert {row["xmin"] for row in claimed} == {row["xmin"] for row in rows}
    assert len(claimed) == JOBS
    # The job that was preempted is older than those that wait.
    again = ends[REASONS.index(Reason.PREEMPTED)].fence.job_id
    granted = {one.grant.job_id: one for _, its in answers for one in its}
    assert granted.keys() == {row["job_id"] for row in claimed}
    assert again in granted or rig.places(again) == ["ready"]
    assert set(made.slots.lent) == {one.grant.fence.token for one in granted.values()}


def test_a_bad_end_in_a_group_harms_no_other(rig: Rig, made: Desk, eventually: Eventually) -> None:
    ends = mixed(made)
    # A job that has an outcome already cannot get another one.
    rig.rows(
        "INSERT INTO outcome (job_id, state, reason, attempt, finished_at)"
        f" VALUES ({ends[4].fence.job_id}, 'cancelled', 'cancelled', 0, now()) RETURNING job_id"
    )
    first, *others = made.exchange(ends, eventually)
    assert first.result()[0].accepted
    for told in others:
        with pytest.raises(EndNotTaken):
            told.result()
    assert rig.count("attempt") == 1
    # Each goes by itself then, on connections that still work.
    for end in ends[1:4] + ends[5:]:
        assert made.gateway.finish([end])[0].accepted
    with pytest.raises(UniqueViolation):
        made.gateway.finish([ends[4]])


def test_a_lease_that_was_lost_is_told_apart_in_a_group(
    rig: Rig, made: Desk, eventually: Eventually
) -> None:
    ends = mixed(made)
    ends[4] = replace(ends[4], fence=replace(ends[4].fence, nonce=uuid4()))
    answers = [told.result()[0].accepted for told in made.exchange(ends, eventually)]
    assert answers == [True, True, True, True, False, True]
    assert rig.places(ends[4].fence.job_id) == ["lease"]


def test_resources_that_may_be_in_use_are_not_lent_to_the_next_job(made: Desk) -> None:
    held, freed = made.ends[:2]
    made.gateway.asked.set()
    _, granted = made.claims.exchange(replace(held, reason=Reason.EXIT_CODE), frees=False)
    assert granted == []
    assert held.fence.token in made.slots.lent
    _, granted = made.claims.exchange(replace(freed, reason=Reason.EXIT_CODE))
    assert len(granted) == 1
    assert freed.fence.token not in made.slots.lent


@pytest.mark.parametrize("prepare", [True, False])
def test_statements_that_run_together_are_one_transaction(rig: Rig, *, prepare: bool) -> None:
    with Database(rig.url, size=1, prepare=prepare) as database:
        with pytest.raises(NotNullViolation):
            database.together(("note", NOTE), ("note", {**NOTE, "actor": None}))
        assert rig.count("event") == 0
        # The connection still works.
        database.together(("note", NOTE), ("note", NOTE))
        assert len({row["xmin"] for row in rig.rows("SELECT xmin FROM event")}) == 1
        assert rig.count("event") == 2


def test_statements_stay_prepared_after_a_rollback(rig: Rig) -> None:
    with Database(rig.url, size=1) as database:
        database.rows("note", **NOTE)
        for _ in range(2):
            with pytest.raises(NotNullViolation):
                database.together(("note", NOTE), ("note", {**NOTE, "actor": None}))
            database.rows("note", **NOTE)
            database.together(("note", NOTE))
            database.rows("note", **NOTE)
        assert rig.count("event") == 7


def test_statements_stay_prepared_after_a_table_is_dropped(rig: Rig) -> None:
    with Database(rig.url, size=1) as database:
        database.rows("note", **NOTE)
        with database.connection() as connection:
            connection.execute("CREATE TEMPORARY TABLE passing ()")
            connection.execute("DROP TABLE passing")
            connection.execute("SELECT 1")
        database.rows("note", **NOTE)
