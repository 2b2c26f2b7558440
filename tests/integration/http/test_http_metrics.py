"""`/metrics` of a server: who may read it, that it adds up, and that it stays bounded."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from forge_functions.routes import queue_gauges
from forge_functions.routes.queue_gauges import QueueGauges
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.states import Reason, Role
from forge_schema.queue.queue import LEASE_TTL
from support.http.api import bearer, opened, problem
from support.http.exposition import Exposition
from support.http.http_worker import held, lease, raw_worker

if TYPE_CHECKING:
    from pathlib import Path

    from forge_schema.database.pool import Database
    from support.http.api import Api, Caller
    from support.queue.rig import Rig

GPUS = [{"uuid": f"GPU-{n}", "name": "A100", "vram_mb": 81_920} for n in range(2)]


@pytest.fixture(autouse=True)
def _always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_gauges, "FRESH_S", -1.0)


def read(caller: Caller) -> Exposition:
    answer = caller.call("GET", "/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return Exposition(answer.text)


def queues(said: Exposition) -> set[str]:
    """Return every queue that a page names."""
    return {
        value for _, labels in said.samples for name, value in labels if name == "queue"
    }  # fmt: skip


def test_a_caller_sees_the_queues_of_the_jobs_that_it_may_see(rig: Rig, tmp_path: Path) -> None:
    key = "m" * 32
    with opened(rig, tmp_path / "store", metrics_key=key) as api:
        admin = api.key("root", Role.ADMIN)
        read(admin)
        rig.submit(owner="bob", queue="done")
        rig.finish(rig.worker().claim_one())
        rig.submit(owner="bob", queue="secret", gpus=3)
        rig.submit_many(2, owner="bob", queue="shared")
        rig.submit(owner="ann", queue="shared")
        rig.clock.advance(61)
        mine = {Role.VIEWER: {"shared"}, Role.SUBMITTER: {"shared"}}
        for role in Role:
            said = read(api.key("ann", role))
            assert queues(said) == mine.get(role, {"done", "secret", "shared"}), role
            waiting = said.value("forge_jobs", queue="shared", state="ready")
            assert waiting == (3 if role is Role.ADMIN else 1)
            shapes = [s for s in said.labels("forge_shape_demand_jobs") if ("gpus", "3") in s]
            assert bool(shapes) == (role is Role.ADMIN)
            assert said.sum("forge_workers") == 1
        assert queues(read(api.key("carl", Role.VIEWER))) == set()
        scraper = api.caller(bearer(key))
        assert read(scraper).samples.keys() >= read(admin).samples.keys()
        problem(scraper.call("GET", "/api/v1/me"), 401, "unauthenticated")
        _, token = api.workers.create("other")
        wrong: list[dict[str, str]] = [{}, {"X-Worker-Token": token}, bearer("fgk_no"), bearer("m")]
        for headers in wrong:
            problem(api.caller(headers).call("GET", "/metrics"), 401, "unauthenticated")
        assert api.caller().call("POST", "/metrics").status_code == 405


def test_anybody_may_read_it_where_it_is_open(rig: Rig, tmp_path: Path) -> None:
    rig.submit(owner="bob", queue="night")
    with opened(rig, tmp_path / "open", metrics_open=True) as api:
        assert queues(read(api.caller())) == {"night"}


def test_the_queue_is_told_as_it_is(api: Api, rig: Rig) -> None:
    scraper = api.key("root", Role.ADMIN)
    rig.submit_many(3, gpus=1, gpu_model="A100*", queue="night", priority=5)
    rig.submit(delay_s=30)
    rig.submit(after_ok=[rig.submit()])
    rig.admin.limit_owner("bob", OwnerSettings(approve_gpu_hours=0))
    rig.submit(owner="bob", gpus=1)
    rig.clock.advance(40)
    worker = rig.worker(gpus=GPUS)
    first = worker.claim(2)
    assert len(first) == 2
    said = read(scraper)
    states = {"scheduled": 0, "held": 0, "ready": 1, "running": 2}
    assert {s: said.value("forge_jobs", queue="night", state=s) for s in states} == states
    assert said.value("forge_jobs", queue="default", state="scheduled") == 1
    assert said.value("forge_jobs", queue="default", state="held") == 2
    assert said.value("forge_jobs_awaiting_approval", queue="default") == 1
    assert said.value("forge_oldest_ready_seconds", queue="night") == 40
    assert said.value("forge_overdue_seconds") == 10
    assert said.value("forge_set_aside_rows") == 0
    assert said.value("forge_gpus_used", queue="night") == 2
    (gpu_shape,) = [s for s in said.labels("forge_shape_demand_jobs") if ("gpus", "1") in s]
    assert said.samples["forge_shape_demand_jobs", gpu_shape] == 3
    assert ("gpu_model", "A100*") in gpu_shape
    assert said.sum("forge_workers") == 1
    assert said.sum("forge_gpus") == 2
    assert (said.value("forge_leases"), said.value("forge_leases_expiring")) == (2, 0)
    rig.clock.advance(LEASE_TTL.total_seconds() * 0.8)
    assert read(scraper).value("forge_leases_expiring") == 2
    assert said.value("forge_sweeper_last_tick_age_seconds") == 40


def test_each_attempt_is_counted_once_and_nothing_falls(api: Api, rig: Rig) -> None:
    scraper = api.key("root", Role.ADMIN)
    worker = rig.worker()

    def end(reason: Reason) -> None:
        rig.submit(max_failures=0)
        rig.finish(worker.claim_one(), reason)

    def counted(reason: str) -> float | None:
        return read(scraper).value("forge_attempts_ended_total", queue="default", reason=reason)

    end(Reason.SUCCEEDED)
    rig.clock.advance(61)
    assert counted("succeeded") is None
    end(Reason.SUCCEEDED)
    end(Reason.EXIT_CODE)
    rig.clock.advance(59)
    assert counted("succeeded") is None
    rig.clock.advance(2)
    assert [counted("succeeded"), counted("succeeded"), counted("exit_code")] == [1, 1, 1]
    rig.clock.advance(-40)
    end(Reason.SUCCEEDED)
    assert counted("succeeded") == 1
    rig.clock.advance(3 * 86_400)
    end(Reason.SUCCEEDED)
    rig.clock.advance(61)
    # A day at a time.
    assert [counted("succeeded") for _ in range(4)] == [2, 2, 2, 3]


def test_requests_are_counted_by_route(api: Api) -> None:
    ann = api.key("ann")
    job = ann.submit()
    for number in range(3):
        ann.get(f"/api/v1/queue/jobs/{job}")
        ann.call("GET", f"/api/v1/queue/jobs/{job + 1 + number}")
        ann.call("GET", f"/nowhere/{number}")
        ann.call("PROPFIND", f"/api/v1/queue/jobs/{number}")
    said = read(ann)
    route = {"route": "/api/v1/queue/jobs/{job_id}", "method": "GET"}
    name = "forge_http_requests_total"
    assert said.value(name, status="200", **route) == 3
    assert said.value(name, status="404", **route) == 3
    assert said.value("forge_http_request_duration_seconds_count", **route) == 6
    assert said.value("forge_http_requests_in_progress") == 1
    routes = {dict(labels)["route"] for labels in said.labels(name)}
    assert not any(f"/{number}" in path for path in routes for number in (job, 1, 2))
    assert {dict(labels)["method"] for labels in said.labels(name)} == {"GET", "POST", "other"}


def test_what_workers_get_and_tell_is_counted(api: Api) -> None:
    scraper = api.key("ann")
    for _ in range(3):
        scraper.submit()
    worker = raw_worker(api)
    first, second = worker.claim(2)
    end = {"reason": "exit_code", "exit_code": 1}
    told = worker.post(f"/job/{first['job_id']}/status", {**held(first), "end": end})
    assert told.is_success, told.text
    assert len(worker.claim(1, ends=[lease(second)])) == 1
    said = read(scraper)
    assert (said.value("forge_claims_total"), said.value("forge_ends_total")) == (3, 2)


def test_a_database_that_is_away_is_told() -> None:
    def away() -> Database:
        raise DatabaseUnreachable("it is away")

    (family,) = QueueGauges(away, LEASE_TTL).families(None)
    assert (family.name, family.samples[0].value) == ("forge_database_up", 0)


def test_no_handler_imports_what_only_a_server_needs() -> None:
    code = (
        "import sys\n"
        "from forge_functions.handlers import admin, dashboard, enrol, submit, sweep, workers\n"
        "assert admin and dashboard and enrol and submit and sweep and workers\n"
        "print([name for name in sys.modules if name.startswith('prometheus')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
