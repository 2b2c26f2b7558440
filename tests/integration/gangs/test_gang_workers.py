"""Workers learn that they are in a gang: directly, over HTTP, late, and after lost answers."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.lease import End
from forge_schema.model.states import Reason, WorkerStatus
from forge_schema.model.worker import Capacity
from forge_schema.wake import Hint
from forge_worker.queue.gateway import SqlGateway
from forge_worker.queue.http.gateway import HttpGateway
from support.at_once import at_once
from support.gangs.gang_workers import MEMBERS, GangWorker, asleep, gang_machine, gang_worker
from support.http.http_worker import session
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.http.api import Api
    from support.queue.rig import Rig


@pytest.fixture
def over_http(api: Api) -> Iterator[GangWorker]:
    """Return a worker that has only a URL and a token."""
    with ExitStack() as open_until_then:
        worker_id, token = api.workers.create("h")
        gateway = HttpGateway(open_until_then.enter_context(session([api.url], token)))
        machine = gang_machine()
        gateway.register(machine)
        yield GangWorker(worker_id, gateway, Capacity(1, 100, 100))


def test_a_direct_worker_and_one_over_http_are_in_one_gang(api: Api, over_http: GangWorker) -> None:
    (direct,) = asleep(api.rig, 1)
    assert over_http.look() == []
    job = api.rig.submit(nodes=2)
    granted = [*direct.look(), *over_http.look()]
    assert [(grant.job_id, grant.nodes) for grant in granted] == [(job, 2)] * 2
    assert {grant.rank for grant in granted} == {0, 1}
    assert all(grant.attempt == 1 for grant in granted)
    assert len({grant.token for grant in granted}) == 2
    assert granted[0].spec["nodes"] == 2
    assert direct.look() == over_http.look() == []


def test_one_over_http_that_waits_for_jobs_hears_that_it_is_in_a_gang(
    api: Api, over_http: GangWorker
) -> None:
    rig, raw = api.rig, over_http.gateway
    assert isinstance(raw, HttpGateway)
    (direct,) = asleep(rig, 1)

    def submit() -> int:
        eventually(lambda: rig.count("idle") == 2)
        return rig.submit(nodes=2)

    free = {"cpus": 1, "memory_mb": 100, "disk_mb": 100}
    (_, token), nonce = api.workers.create("w"), "00000000-0000-0000-0000-000000000007"
    headers, boot = {"X-Worker-Token": token}, "00000000-0000-0000-0000-000000000001"
    room = {**free, "boot_id": boot, "address": "10.0.0.9"}
    api.http.post("/api/v1/workers/register", json=room, headers=headers)
    claim = {"free": free, "wait_s": 60, "boot_id": boot, "nonce": nonce}
    waits = partial(api.http.post, "/api/v1/workers/claim", json=claim, headers=headers)
    calls: list[Callable[[], Any]] = [waits, submit]
    answer, job = at_once(*calls)
    (grant,) = answer.json()["grants"]
    assert (grant["job_id"], grant["nonce"], grant["nodes"]) == (job, nonce, 2)
    assert {grant["rank"], direct.look()[0].rank} == {0, 1}


def test_a_worker_of_the_version_before_sends_no_address_and_is_in_no_gang(api: Api) -> None:
    worker_id, token = api.workers.create("old")
    headers, room = {"X-Worker-Token": token}, {"cpus": 1, "memory_mb": 100, "disk_mb": 100}
    boot = {"boot_id": "00000000-0000-0000-0000-000000000001"}
    api.http.post("/api/v1/workers/register", json={**room, **boot}, headers=headers)
    claim = {**boot, "free": room, "nonce": "00000000-0000-0000-0000-000000000007"}
    answer = api.http.post("/api/v1/workers/claim", json=claim, headers=headers).json()
    assert answer["grants"] == []
    asleep(api.rig, 1)
    api.rig.submit(nodes=2)
    assert api.rig.rows(MEMBERS) == []
    assert api.rig.rows("SELECT nonce FROM idle WHERE worker_id = %s", worker_id) == [
        {"nonce": None}
    ]


def test_a_worker_that_takes_no_part_in_gangs_asks_for_nothing_more(rig: Rig) -> None:
    worker = gang_worker(rig, "w", address=None)
    worker.look()
    rig.database.names()
    for _ in range(2):
        assert worker.gateway.finish_and_claim([], worker.free, 1) == ([], [])
    assert "formed" not in rig.database.names()


def test_a_sleeping_worker_that_may_be_in_a_gang_writes_nothing(rig: Rig) -> None:
    (worker,) = asleep(rig, 1)
    rig.database.names()
    for _ in range(2):
        assert worker.gateway.finish_and_claim([], worker.free, 1) == ([], [])
    assert not {"sleep", "rise", "claimed_before"} & {*rig.database.names()}


def test_a_formed_gang_wakes_its_workers_and_no_others(rig: Rig) -> None:
    first, second, third = asleep(rig, 3)
    with rig.listening() as heard:
        rig.submit(nodes=2)
        payloads = [*heard()]
        while more := heard():
            payloads += more
    woken: set[int] = set()
    for payload in payloads:
        woken |= {
            worker.id
            for worker in (first, second, third)
            if isinstance(worker.gateway, SqlGateway) and worker.gateway.wakes(Hint.read(payload))
        }
    assert woken == {row["worker_id"] for row in rig.rows(MEMBERS)}
    assert len(woken) == 2


def test_a_grant_in_a_gang_whose_answer_is_lost_is_handed_out_again(rig: Rig) -> None:
    first, _ = asleep(rig, 2)
    rig.submit(nodes=2)
    rig.database.lose("formed", "formed", "formed", "formed")
    with pytest.raises(DatabaseUnreachable):
        first.look()
    (grant,) = first.look()
    assert (grant.nodes, first.look()) == (2, [])


def test_a_worker_that_leaves_gives_back_what_it_did_not_know_of(rig: Rig) -> None:
    first, second = asleep(rig, 2)
    rig.submit(nodes=2)
    with first.gateway.granted_before() as granted:
        assert [grant.nodes for grant in granted] == [2]
    with first.gateway.granted_before() as granted:
        assert granted == []
    assert [grant.nodes for grant in second.look()] == [2]


def test_no_gang_is_given_a_worker_that_leaves(rig: Rig) -> None:
    first, _ = asleep(rig, 2)
    with first.gateway.granted_before() as granted:
        assert granted == []
    rig.submit(nodes=2)
    assert rig.rows(MEMBERS) == []


def test_what_a_worker_that_died_was_granted_expires(rig: Rig) -> None:
    alive, dead = asleep(rig, 2)
    rig.submit(nodes=2)
    (grant,) = alive.look()
    rig.clock.advance(100)
    alive.gateway.renew([grant.fence], WorkerStatus.BUSY)
    rig.clock.advance(30)
    (expired,) = rig.rows("SELECT worker_id FROM lease WHERE expires_at < forge_now()")
    assert expired["worker_id"] == dead.id
    # It is too late for it: the sweeper ends the attempt.
    assert dead.look() == []


def test_a_worker_that_took_a_job_offers_itself_under_a_new_name(rig: Rig) -> None:
    (first,) = asleep(rig, 1)
    (before,) = rig.rows("SELECT nonce FROM idle WHERE worker_id = %s", first.id)
    rig.rows("DELETE FROM idle WHERE worker_id = %s", first.id)
    rig.submit()
    (grant,) = first.look()
    assert first.look([End(grant.fence, Reason.SUCCEEDED)]) == []
    (after,) = rig.rows("SELECT nonce FROM idle WHERE worker_id = %s", first.id)
    assert before["nonce"] == grant.nonce != after["nonce"]
    second = gang_worker(rig, "second")
    second.look()
    rig.submit(nodes=2)
    assert [worker.look()[0].nodes for worker in (first, second)] == [2, 2]


@pytest.mark.parametrize("ttl_s", [15, 600])
def test_a_lease_in_a_gang_lasts_from_when_it_is_fetched(rig: Rig, ttl_s: int) -> None:
    ttl = timedelta(seconds=ttl_s)
    workers = [gang_worker(rig, f"g{n}", ttl=ttl) for n in range(2)]
    for worker in workers:
        worker.look()
    rig.submit(nodes=2)
    rig.clock.advance(12)
    (first,) = workers[0].look()
    # The answer to the second is lost, and then it has what is left.
    rig.database.lose(*["formed"] * 4)
    with pytest.raises(DatabaseUnreachable):
        workers[1].look()
    rig.clock.advance(1)
    (second,) = workers[1].look()
    left = "SELECT rank, phase, extract(EPOCH FROM expires_at - forge_now()) AS s FROM lease"
    by_rank = {row["rank"]: (row["phase"], float(row["s"])) for row in rig.rows(left)}
    assert by_rank[first.rank] == ("preparing", ttl_s - 1)
    assert by_rank[second.rank] == ("preparing", ttl_s - 1)
    # The watchdog counts from then too.
    assert (first.age_s, second.age_s) == (0, 1)


def test_a_claim_without_an_answer_that_a_gang_leased_since_gets_that(rig: Rig) -> None:
    first, second = asleep(rig, 2)
    rig.database.lose(*["finish_and_claim"] * 4)
    with pytest.raises(DatabaseUnreachable):
        first.look()
    rig.submit(nodes=2)
    assert [worker.look()[0].nodes for worker in (first, second)] == [2, 2]
    assert rig.rows("SELECT FROM lease WHERE phase = 'claimed'") == []
