"""A worker on which jobs fail that succeed elsewhere rests, and is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from forge_schema.explain import explain
from forge_schema.model.states import Reason
from forge_schema.sweeper.tick import Tick
from support.at_once import at_once
from support.database.explain import buffers

if TYPE_CHECKING:
    from support.queue.rig import Rig, Worker

MINUTE_S = 60
# A range of the index by time is 128 pages; Postgres 14 reads some more of them than later ones.
MORE_PAGES = 600


def alive(rig: Rig, *names: str) -> list[Worker]:
    """Return workers that have been heard from."""
    workers = [rig.worker(name, cpus=8) for name in names]
    for worker in workers:
        worker.renew()
    return workers


def one_fails(
    rig: Rig, bad: Worker, good: Worker, owner: str, then: Reason = Reason.SUCCEEDED
) -> None:
    """Have a job of an owner fail on one worker, and succeed on another one."""
    rig.submit(owner=owner, backoff_s=0, max_failures=5)
    rig.finish(bad.claim_one(), Reason.EXIT_CODE, exit_code=1, detail="boom")
    rig.finish(good.claim_one(), then)


def suspects(rig: Rig) -> dict[str, float | None]:
    """Let a sweeper judge; return for how long each suspected worker rests."""
    Tick(rig.queue).suspect()
    rows = rig.registry.workers()
    return {row["name"]: row["rests_s"] for row in rows if row["suspected_for"]}


def test_a_worker_where_jobs_of_two_owners_fail_rests_and_a_success_ends_it(rig: Rig) -> None:
    bad, good = alive(rig, "bad", "good")
    one_fails(rig, bad, good, "ann")
    one_fails(rig, bad, good, "ann")
    assert suspects(rig) == {}
    one_fails(rig, bad, good, "ben")
    assert suspects(rig) == {"bad": MINUTE_S}
    job = rig.submit()
    assert bad.claim() == []
    (chance,) = (one for one in explain(rig.database, job).workers if one.worker == "bad")
    assert chance.text.startswith("is suspected, and tries the next job in 1 min: jobs of 2 owners")
    assert bad.renew().suspected
    rig.clock.advance(MINUTE_S)
    rig.finish(bad.claim_one())
    assert suspects(rig) == {}
    assert not bad.renew().suspected
    told = rig.rows("SELECT action FROM event WHERE action IN ('suspected', 'trusted') ORDER BY id")
    assert [row["action"] for row in told] == ["suspected", "trusted"]


def test_each_failed_try_doubles_the_rest_and_an_admin_ends_it(rig: Rig) -> None:
    bad, good = alive(rig, "bad", "good")
    for owner in ("ann", "ben"):
        one_fails(rig, bad, good, owner)
    rests = [suspects(rig)["bad"]]
    for _ in range(7):
        rig.clock.advance(rests[-1] or 0)
        rig.submit()
        rig.finish(bad.claim_one(), Reason.EXIT_CODE, exit_code=1)
        rig.clock.advance(1)
        rests.append(suspects(rig)["bad"])
    assert rests == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    rig.registry.command(bad.id, None)
    assert suspects(rig) == {}
    rig.submit()
    assert len(bad.claim()) == 1


def test_of_two_that_are_blamed_at_the_same_moment_only_half_of_the_fleet_rests(rig: Rig) -> None:
    first, second, good = alive(rig, "first", "second", "good")
    for owner in ("ann", "ben"):
        for bad in (first, second):
            one_fails(rig, bad, good, owner)
    at_once(*[lambda: Tick(rig.queue).suspect() for _ in range(4)])
    assert list(suspects(rig)) == ["first"]
    # With the good one gone, one of two may rest.
    rig.rows("UPDATE worker SET status = 'offline' WHERE id = %s", good.id)
    assert suspects(rig) == {"first": MINUTE_S}
    rig.rows("UPDATE worker SET status = 'offline' WHERE id = %s", second.id)
    assert suspects(rig) == {"first": None}


@pytest.mark.parametrize("why", ["alone", "it succeeds as often", "nobody succeeds"])
def test_a_worker_is_not_suspected(rig: Rig, why: str) -> None:
    bad, good = alive(rig, "bad", "good")
    then = Reason.CANCELLED if why == "nobody succeeds" else Reason.SUCCEEDED
    for owner in ("ann", "ben"):
        one_fails(rig, bad, good, owner, then)
    if why == "alone":
        rig.rows("UPDATE worker SET status = 'offline' WHERE id = %s", good.id)
    if why == "it succeeds as often":
        for _ in range(3):
            rig.submit()
            rig.finish(bad.claim_one())
    assert suspects(rig) == {}


def test_a_long_history_costs_the_judgement_few_pages(rig: Rig) -> None:
    bad, good = alive(rig, "bad", "good")
    for owner in ("ann", "ben"):
        one_fails(rig, bad, good, owner)

    def cost() -> int:
        with psycopg.connect(rig.url) as connection:
            connection.execute("ANALYZE")
            buffers(connection, "suspect", {"actor": "test"})
            return buffers(connection, "suspect", {"actor": "test"})[0]

    short = cost()
    rig.rows(
        "INSERT INTO attempt_row (job_id, attempt, rank, finished_at, token, nonce, worker_id,"
        " lane_id, ready_at, claimed_at, reason)"
        " SELECT n, 1, 0, at, n, gen_random_uuid(), 1, 1, at, at, 'exit_code'"
        " FROM generate_series(1000, 60000) AS n,"
        " LATERAL (SELECT forge_now() - interval '6 hours' - (60000 - n) * interval '1 s')"
        " AS moment (at)"
    )
    assert cost() < short + MORE_PAGES
    assert suspects(rig) == {"bad": MINUTE_S}


def test_a_job_that_runs_elsewhere_for_long_is_enough(rig: Rig) -> None:
    bad, good = alive(rig, "bad", "good")
    for owner in ("ann", "ben"):
        rig.submit(owner=owner, backoff_s=0, max_failures=5)
        rig.finish(bad.claim_one(), Reason.EXIT_CODE, exit_code=1)
        good.claim_one()
    rig.rows("UPDATE lease SET started_at = forge_now()")
    assert suspects(rig) == {}
    rig.clock.advance(MINUTE_S + 1)
    assert "bad" in suspects(rig)
