"""Reports that hang hold up nobody else: workers and submitters have threads and connections."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import psycopg
import pytest
from forge_functions.errors import Refused
from forge_functions.middleware.admission import BURST_S, Rate
from forge_functions.middleware.bulkheads import OF_ONE_CALLER, RequestPart, part_of
from forge_schema.model.states import Role
from support.http.api import opened, problem
from support.http.guest import Guest
from support.http.http_worker import raw_worker
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import httpx
    from support.http.api import Api
    from support.queue.rig import Rig

Asked: TypeAlias = "Sequence[Future[httpx.Response]]"
REPORT = "/api/v1/reports/attempt_history"
# Every report waits, in the database, until the gate is open.
GATE = """
CREATE TABLE gate (opened integer);
ALTER VIEW attempt_history RENAME TO history;
CREATE FUNCTION gated() RETURNS SETOF history LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    WHILE NOT EXISTS (SELECT FROM gate) LOOP PERFORM pg_sleep(0.05); END LOOP;
    RETURN QUERY SELECT * FROM history;
END $$;
CREATE VIEW attempt_history AS SELECT * FROM gated();
"""
WAITING = """
SELECT 1 FROM pg_stat_activity
WHERE state = 'active' AND starts_with(query, 'SELECT * FROM "attempt_history"')
    AND datname = current_database()
"""

LOCKED = """
SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


@contextmanager
def gate(rig: Rig) -> Iterator[None]:
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute(GATE)
        try:
            yield
        finally:
            connection.execute("INSERT INTO gate VALUES (1)")


@pytest.fixture
def api(rig: Rig, tmp_path: Path) -> Iterator[Api]:
    with opened(rig, tmp_path / "store", report_limit_s=600) as api:
        api.http.timeout = 120
        yield api


def flooded(
    pool: ThreadPoolExecutor, ask: Callable[[], httpx.Response]
) -> Sequence[Future[httpx.Response]]:
    """Request a report many times; all but the requests that may wait are refused."""
    asked = [pool.submit(ask) for _ in range(24)]
    eventually(lambda: sum(one.done() for one in asked) == 24 - OF_ONE_CALLER)
    return asked


@pytest.mark.parametrize("pages", [False, True], ids=["api", "pages"])
def test_others_go_on_while_reports_hang(api: Api, *, pages: bool) -> None:
    worker, ann, rig = raw_worker(api), api.key(), api.rig
    with ThreadPoolExecutor(24) as pool, gate(rig):
        if pages:
            guest = Guest(api).login("bob", Role.VIEWER)
            guest.http.timeout = 120
            flooded(pool, lambda: guest.http.get("/reports/attempt_history"))
        else:
            bob = api.key("bob", Role.VIEWER)
            flooded(pool, lambda: bob.call("GET", REPORT))
        eventually(lambda: len(rig.rows(WAITING)) == 1)
        job = ann.submit()
        assert worker.claim()[0]["job_id"] == job
        assert worker.heartbeat() is not None
        assert ann.get(f"/api/v1/queue/jobs/{job}")["state"] == "running"
        assert api.http.get("/health").is_success
        assert len(rig.rows(WAITING)) == 1


def test_others_go_on_while_reads_hang(api: Api) -> None:
    worker, ann, bob, rig = raw_worker(api), api.key(), api.key("bob"), api.rig
    path = f"/api/v1/queue/jobs/{bob.submit()}/artifacts"
    with ThreadPoolExecutor(24) as pool, psycopg.connect(rig.url) as gate:
        gate.execute("LOCK TABLE artifact")
        asked = [pool.submit(bob.call, "GET", path) for _ in range(24)]
        # A quarter of those that run at once: the rest of the connections is for others.
        eventually(lambda: len(rig.rows(LOCKED)) == 3)
        ann.submit()
        assert ann.get("/api/v1/queue/jobs")["items"]
        assert worker.claim()
        assert worker.heartbeat() is not None
        assert api.http.get("/health").is_success
        assert not any(one.done() for one in asked)
        gate.rollback()


def test_caller_with_too_many_reports_is_told_when_to_come_again(api: Api) -> None:
    bob, eve, ann = (api.key(owner, Role.VIEWER) for owner in ("bob", "eve", "ann"))
    with ThreadPoolExecutor(48) as pool:
        with gate(api.rig):
            asked = [*flooded(pool, lambda: bob.call("GET", REPORT))]
            asked += flooded(pool, lambda: eve.call("GET", REPORT))
            answer = ann.call("GET", REPORT)
            problem(answer, 503, "busy")
            assert "since" in answer.json()["hint"]
        answers = [one.result() for one in asked]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(answers) - len(refused) == 2 * OF_ONE_CALLER
    for answer in refused:
        problem(answer, 429, "too_many_at_once")
        assert int(answer.headers["retry-after"]) > 0
    assert ann.get(REPORT)["items"] == []


def test_caller_who_asks_too_often_is_told_when_to_come_again() -> None:
    now = [0.0]
    rate = Rate(2.0, clock=lambda: now[0])
    for _ in range(2 * BURST_S):
        rate.take("bob")
    for _ in range(3):
        with pytest.raises(Refused) as refused:
            rate.take("bob")
        assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
    rate.take("ann")
    now[0] += 0.5
    rate.take("bob")
    with pytest.raises(Refused):
        rate.take("bob")


def test_limit_is_on_people_and_not_on_workers(rig: Rig, tmp_path: Path) -> None:
    with opened(rig, tmp_path / "store", caller_rate=0.1) as api:
        ann, worker = api.key(), raw_worker(api)
        assert ann.submit()
        problem(ann.call("GET", "/api/v1/me"), 429, "too_many_requests")
        assert api.key("bob").get("/api/v1/me")["owner"] == "bob"
        for _ in range(3):
            assert worker.heartbeat() is not None


def test_report_that_takes_too_long_says_how_to_ask_for_less(rig: Rig, tmp_path: Path) -> None:
    with opened(rig, tmp_path / "store", report_limit_s=0.2) as api, gate(rig):
        answer = api.key().call("GET", REPORT)
        problem(answer, 422, "report_too_slow")
        assert "since" in answer.json()["hint"]


@pytest.mark.parametrize(
    ("method", "path", "part"),
    [
        ("POST", "/api/v1/workers/heartbeat", RequestPart.PROTOCOL),
        ("GET", "/api/v1/workers/stream", RequestPart.PROTOCOL),
        ("POST", "/api/v1/queue/submit", RequestPart.CHANGES),
        ("POST", "/jobs/cancel", RequestPart.CHANGES),
        ("GET", "/api/v1/workers", RequestPart.READS),
        ("GET", "/api/v1/workers/7", RequestPart.READS),
        ("GET", "/api/v1/workers/job/7/checkpoint", RequestPart.PROTOCOL),
        ("GET", "/health", RequestPart.PROTOCOL),
        ("GET", "/api/v1/objects/a", RequestPart.PROTOCOL),
        ("GET", "/api/v1/queue/jobs", RequestPart.READS),
        ("GET", "/jobs/1", RequestPart.READS),
        ("GET", "/metrics", RequestPart.READS),
        ("GET", "/api/v1/reports/cost", RequestPart.REPORTS),
        ("GET", "/reports/cost.csv", RequestPart.REPORTS),
    ],
)
def test_parts_of_the_server(method: str, path: str, part: RequestPart) -> None:
    assert part_of(method, path) is part
