"""A sweeper dies or loses its connection at any statement: another one does the rest."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import pytest
from forge_schema.database import pool as databases
from forge_schema.database.connections import AwaitedAnswers
from forge_schema.database.pool import ANSWER_S, Database, DatabaseUnreachable, run
from forge_schema.model.states import Phase, State
from forge_schema.queue.queue import Queue
from forge_schema.sweeper.tick import Tick
from support.database.databases import Watched
from support.queue.rig import CENTURY
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from forge_schema.database.pool import Connection, Row
    from support.queue.rig import Rig, Worker

STATEMENTS = ["expired", "finish", "promote", "draft", "grow", "wake_again", "displace"]
STATEMENTS += ["due_schedules", "overdue", "overrun", "decisive", "offline", "reap", "count_usage"]
STATEMENTS += ["release_stragglers", "mend_turns", "suspect"]
STATEMENTS += ["make_partitions", "forget_nonces", *["thin:metric", "thin:sample"] * 2]
STATEMENTS += ["withhold_notifications", "noticed", "new_deliveries", "forget_deliveries"]


class Died(Exception):
    """The sweeper's process is gone."""


class Mortal(Database):
    """Runs so many statements and dies: before the next one, or before the last one's answer."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.lives = 0
        self.answers = True

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        with super()._lent() as connection:
            yield cast("Connection", Watched(self, connection))

    def run(self, connection: Connection, name: str, params: Mapping[str, object]) -> list[Row]:
        """Run a statement while it lives."""
        if self.lives == 0:
            raise Died
        rows = run(connection, name, params)
        self.lives -= 1
        if self.lives == 0 and not self.answers:
            raise Died
        return rows


@pytest.fixture
def mortal(rig: Rig) -> Iterator[Mortal]:
    with Mortal(rig.url) as made:
        yield made


@pytest.mark.parametrize("answers", [True, False], ids=["before", "after"])
def test_whatever_statement_it_dies_at_each_move_is_made_once(
    rig: Rig, mortal: Mortal, *, answers: bool
) -> None:
    worker = rig.worker()
    rig.tick.make_partitions()
    assert _tick_in_full(rig, worker) == STATEMENTS
    for lives in range(0 if answers else 1, len(STATEMENTS) + (0 if answers else 1)):
        worker.renew()
        lost, late = rig.submit(), rig.submit(timeout_s=200)
        grants = {grant.fence.job_id: grant for grant in worker.claim(count=2)}
        rig.clock.advance(rig.queue.ttl.total_seconds() - 1)
        rig.queue.report(grants[late].fence, Phase.RUNNING)
        due = rig.submit(delay_s=1)
        rig.clock.advance(202)
        worker.renew(grants[late])
        rig.clock.advance(2)
        mortal.lives, mortal.answers = lives, answers
        with pytest.raises(Died):
            _tick(mortal, rig).run()
        rig.tick.run()
        assert [rig.places(job) for job in (lost, due, late)] == [["ready"], ["ready"], ["lease"]]
        assert len(rig.jobs.attempts(lost)) == 1
        assert rig.actions(due).count("promoted") == 1
        assert rig.actions(late).count("asked to time out") == 1
        for job in (lost, due):
            rig.queue.cancel(job)
        rig.finish(grants[late])


def test_a_backend_killed_inside_a_statement_moves_the_lease_once(rig: Rig) -> None:
    job_id = rig.submit()
    grant = rig.worker().claim_one()
    rig.expire()
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            queue.report(grant.fence, Phase.RUNNING)
            swept = pool.submit(rig.tick.run)
            rig.wait_until_blocked()
            rig.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
        assert swept.result(timeout=60).requeued == 1
    assert (rig.places(job_id), len(rig.jobs.attempts(job_id))) == (["ready"], 1)


def test_a_server_that_never_answers_is_given_up_and_the_sweeper_goes_on(rig: Rig) -> None:
    job_id = rig.submit()
    rig.worker().claim_one()
    rig.expire()
    now = [0.0]
    with Database(rig.url) as database, ThreadPoolExecutor(1) as pool:
        database._answers = answers = AwaitedAnswers(ANSWER_S, lambda: now[0])
        with _stopped_backend(database):
            swept = pool.submit(_tick(database, rig).run)
            eventually(lambda: answers._since)
            now[0] = ANSWER_S
            assert answers.break_off() == 0
            now[0] += 1
            assert answers.break_off() == 1
            assert swept.result(timeout=60).requeued == 1
    assert (rig.places(job_id), len(rig.jobs.attempts(job_id))) == (["ready"], 1)


def test_a_server_that_never_answers_what_is_not_prepared_is_given_up(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Database(rig.url, size=1, prepare=False) as database, _stopped_backend(database):
        monkeypatch.setattr(databases, "ANSWER_S", 0.2)
        with pytest.raises(DatabaseUnreachable):
            database.rows("health")
        monkeypatch.undo()
        assert database.rows("health")


def test_a_job_past_its_time_limit_on_a_worker_that_is_gone_has_failed(rig: Rig) -> None:
    job_id = rig.submit(timeout_s=10)
    rig.queue.report(rig.worker().claim_one().fence, Phase.RUNNING)
    rig.clock.advance(11)
    assert rig.tick.run().overdue == 1
    rig.expire()
    assert rig.tick.run().requeued == 1
    assert (rig.places(job_id), rig.state(job_id)) == (["outcome"], State.FAILED)
    assert rig.jobs.job(job_id)["reason"] == "timeout"


@contextmanager
def _stopped_backend(database: Database) -> Iterator[None]:
    """Stop the server's process of the one connection that is open, as if its machine hung."""
    with database.connection() as connection:
        pid = connection.info.backend_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _tick(database: Database, rig: Rig) -> Tick:
    return Tick(Queue(database, actor="sweeper", ttl=rig.queue.ttl), every=CENTURY)


def _tick_in_full(rig: Rig, worker: Worker) -> list[str]:
    """Return the statements of a tick that has a lease to end."""
    worker.renew()
    job_id = rig.submit()
    worker.claim_one()
    rig.expire()
    rig.database.names()
    rig.tick.run()
    ran = rig.database.names()
    rig.queue.cancel(job_id)
    return ran
