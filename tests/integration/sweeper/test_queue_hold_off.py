"""After an outage the workers have one TTL to renew, whoever ticks and however often."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import cycle, islice
from typing import TYPE_CHECKING

import pytest
import stamina
from forge_schema.model.states import Standing, State, WorkerKind
from forge_schema.queue.queue import Queue
from forge_schema.sweeper.tick import EVERY, LATE_HEEDED, Tick, Windows
from support.at_once import at_once

if TYPE_CHECKING:
    from support.queue.rig import Rig, Worker

TTL_S = 120
LATE_S = 30


@pytest.fixture
def tick(rig: Rig) -> Tick:
    """A sweeper that recognises outages, and has ticked just now."""
    rig.rows("UPDATE sweeper SET ticked_at = forge_now()")
    assert rig.queue.ttl == timedelta(seconds=TTL_S)
    return Tick(Queue(rig.database, actor="sweeper"))


def sweep_on(rig: Rig, tick: Tick, seconds: float) -> int:
    """Let time pass with regular ticks, and return how many leases they ended."""
    ended = 0
    for _ in range(int(seconds / EVERY.total_seconds())):
        rig.clock.advance(EVERY.total_seconds())
        ended += tick.run().requeued
    return ended


def test_who_renews_after_an_outage_keeps_its_job_and_who_does_not_loses_it(
    rig: Rig, tick: Tick
) -> None:
    job_ids = rig.submit_many(2)
    alive, dead = rig.worker("alive"), rig.worker("dead", kind=WorkerKind.EPHEMERAL)
    kept, gone = alive.claim_one(), dead.claim_one()
    dead.renew(gone)
    assert sweep_on(rig, tick, 60) == 0
    rig.clock.advance(10 * TTL_S)
    moved = tick.run()
    assert (moved.requeued, moved.offline, moved.reaped) == (0, 0, 0)
    late = rig.database.row("lateness", ttl=rig.queue.ttl)
    assert late is not None
    assert late["seconds"] <= 0
    assert sweep_on(rig, tick, 60) == 0
    assert alive.renew(kept).standings == {kept.fence: Standing.OK}
    assert sweep_on(rig, tick, 50) == 0
    assert (sweep_on(rig, tick, 20), rig.state(job_ids[1])) == (1, State.READY)
    assert rig.state(job_ids[0]) == State.RUNNING
    statuses = {row["name"]: row["status"] for row in rig.registry.workers()}
    assert statuses == {"alive": "busy", "dead": "offline"}


@pytest.mark.parametrize(("pause_s", "ended"), [(LATE_S, 1), (LATE_S + 0.001, 0)])
def test_a_pause_of_a_quarter_of_a_ttl_is_no_outage(
    rig: Rig, tick: Tick, pause_s: float, ended: int
) -> None:
    rig.submit()
    rig.worker().claim_one()
    assert sweep_on(rig, tick, TTL_S) == 0
    rig.clock.advance(pause_s)
    assert tick.run().requeued == ended


@pytest.mark.usefixtures("tick")
def test_a_slow_sweepers_own_pace_is_no_outage(rig: Rig) -> None:
    slow = Tick(Queue(rig.database, actor="sweeper"), every=timedelta(minutes=1))
    rig.submit()
    rig.worker().claim_one()
    for _ in range(2):
        rig.clock.advance(60)
        assert slow.run().requeued == 0
    rig.clock.advance(60)
    assert slow.run().requeued == 1


def test_a_server_that_started_since_the_last_tick_was_away(rig: Rig, tick: Tick) -> None:
    started: datetime = rig.row("SELECT pg_postmaster_start_time() AS at")["at"]
    rig.clock.set(started - timedelta(seconds=TTL_S))
    rig.submit()
    rig.worker().claim_one()
    rig.clock.set(started - timedelta(seconds=1))
    rig.rows("UPDATE sweeper SET ticked_at = forge_now()")
    rig.clock.set(started + timedelta(seconds=1))
    assert tick.run().requeued == 0
    assert sweep_on(rig, tick, TTL_S - 10) == 0
    assert sweep_on(rig, tick, 10) == 1


def test_an_unannounced_pace_delays_only_so_often(rig: Rig, tick: Tick) -> None:
    rig.submit()
    rig.worker().claim_one()
    for _ in range(LATE_HEEDED):
        rig.clock.advance(10 * TTL_S)
        assert tick.run().requeued == 0
    rig.clock.advance(10 * TTL_S)
    assert tick.run().requeued == 1
    # The next outage counts as one again once ticks have come regularly in between.
    rig.worker().claim_one()
    assert sweep_on(rig, tick, 10) == 0
    rig.clock.advance(10 * TTL_S)
    assert tick.run().requeued == 0


def test_sweepers_at_once_and_lost_answers_hold_off_all_the_same(rig: Rig, tick: Tick) -> None:
    rig.submit_many(5)
    rig.worker().claim(count=5)
    rig.clock.advance(10 * TTL_S)
    assert sum(tick.requeued for tick in at_once(*[tick.run] * 4)) == 0
    rig.clock.advance(TTL_S)
    rig.rows("UPDATE sweeper SET ticked_at = forge_now() - interval '1 hour'")
    with stamina.set_testing(True, attempts=4, cap=True):
        rig.database.lose("expired", "expired")
        assert tick.run().requeued == 0
    assert sweep_on(rig, tick, TTL_S) == 5
    assert rig.count("attempt") == 5


def test_the_row_is_made_where_it_is_missing(rig: Rig, tick: Tick) -> None:
    rig.submit()
    rig.worker().claim_one()
    rig.rows("DELETE FROM sweeper")
    rig.expire()
    assert [tick.run().requeued for _ in range(2)] == [0, 0]
    assert rig.count("sweeper") == 1
    assert sweep_on(rig, tick, TTL_S) == 1


def test_a_clock_put_back_makes_no_hold_longer(rig: Rig, tick: Tick) -> None:
    rig.clock.advance(3600)
    tick.run()
    rig.clock.advance(-3600)
    rig.submit()
    rig.worker().claim_one()
    assert sweep_on(rig, tick, TTL_S) == 0
    assert sweep_on(rig, tick, 10) == 1


def over_http(rig: Rig, name: str = "remote") -> Worker:
    """Make a worker that has a token, as those that come over HTTP have."""
    worker = rig.worker(name)
    rig.rows("UPDATE worker SET token_hash = sha256('secret') WHERE id = %s", worker.id)
    return worker


def served(rig: Rig, seconds: int = 0) -> None:
    """Have a server note that it is here, now and until `seconds` have gone by."""
    rig.database.rows("serve", gap=rig.queue.ttl / 4)
    for _ in range(seconds):
        rig.clock.advance(1)
        rig.database.rows("serve", gap=rig.queue.ttl / 4)


def test_while_no_server_is_there_leases_of_workers_over_http_stay(rig: Rig) -> None:
    served(rig)
    kept, gone, direct = rig.submit_many(3)
    remote, dead, near = over_http(rig), over_http(rig, "dead"), rig.worker("direct")
    grant, lost = remote.claim_one(), dead.claim_one()
    assert near.claim_one().fence.job_id == direct
    rig.clock.advance(10 * TTL_S)
    assert rig.tick.run().requeued == 1
    assert rig.places(direct) == ["ready"]
    served(rig, TTL_S - 1)
    assert rig.tick.run().requeued == 0
    late = rig.database.row("lateness", ttl=rig.queue.ttl)
    assert late is not None
    assert late["seconds"] <= 0
    assert remote.renew(grant).standings == {grant.fence: Standing.OK}
    served(rig, 1)
    assert rig.tick.run().requeued == 1
    assert (rig.places(kept), rig.places(gone)) == (["lease"], ["ready"])
    assert not rig.finish(lost).accepted
    assert rig.finish(grant).accepted
    assert len(rig.jobs.attempts(kept)) == 1


def test_a_lease_that_no_server_comes_back_for_goes(rig: Rig) -> None:
    unserved_s = Windows().unserved.total_seconds()
    served(rig)
    rig.submit()
    over_http(rig).claim_one()
    rig.clock.advance(unserved_s - 1)
    assert rig.tick.run().requeued == 0
    rig.clock.advance(1)
    assert rig.tick.run().requeued == 1
    # The servers are gone for good, and hold up nothing more.
    rig.worker("remote").claim_one()
    rig.expire()
    assert rig.tick.run().requeued == 1


def test_servers_that_come_and_go_hold_up_a_lease_only_so_long(rig: Rig) -> None:
    rig.submit()
    over_http(rig).claim_one()
    rig.expire()
    silent_s = 0
    served(rig)
    while rig.tick.requeue() == 0:
        rig.clock.advance(600)
        silent_s += 600
        served(rig)
    assert silent_s == Windows().unserved.total_seconds()


def test_where_no_server_ever_was_leases_go_when_they_run_out(rig: Rig) -> None:
    rig.submit()
    over_http(rig).claim_one()
    rig.expire()
    assert rig.tick.run().requeued == 1


def test_a_server_that_restarts_quickly_holds_up_nothing(rig: Rig) -> None:
    rig.submit()
    over_http(rig).claim_one()
    for _ in range(5):
        served(rig)
        rig.clock.advance(TTL_S / 4)
    served(rig)
    assert rig.tick.run().requeued == 1


# Pauses before a tick, and how often its sweeper thinks that it ticks.
PACES = {
    "late and in time by turns": [(35, 10), (20, 10)],
    "in time just after late": [(35, 10), (35, 10), (35, 10), (35, 10), (1, 10)],
    "a function, and a worker that comes and goes": [
        (60, 60),
        (35, 10),
        (10, 10),
        (10, 10),
        (5, 60),
    ],
    "a function that is late, and a worker": [(95, 60), (35, 10), (10, 10), (95, 60), (5, 60)],
}


@pytest.mark.parametrize("pace", PACES.values(), ids=PACES)
def test_no_pace_holds_off_for_ever(rig: Rig, pace: list[tuple[int, int]]) -> None:
    rig.rows("UPDATE sweeper SET ticked_at = forge_now()")
    queue = Queue(rig.database, actor="sweeper")
    ticks = {every: Tick(queue, every=timedelta(seconds=every)) for every in (10, 60)}
    for turn, (pause_s, every_s) in enumerate(islice(cycle(pace), 70)):
        rig.clock.advance(pause_s)
        ticks[every_s].run()
        # Its worker dies at once, each time at another point of the pace.
        if turn % 7 == 0:
            rig.submit()
            rig.worker(f"of turn {turn}").claim_one()
    silent = [row["s"] for row in rig.rows("SELECT finished_at - claimed_at AS s FROM attempt")]
    assert len(silent) >= 7
    # The lease, then each late tick that is heeded, with a pause before them and one after.
    longest_s = (1 + LATE_HEEDED) * TTL_S + 2 * max(pause_s for pause_s, _ in pace)
    assert max(silent) <= timedelta(seconds=longest_s)
