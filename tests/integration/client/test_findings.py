"""Results, tests and sweeps: kept by the holder of a lease, and read by their owner both ways."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from forge_client import Client, ClientError
from forge_client.cli.jobs.testing import why_none
from forge_client.findings import all_points, all_tests
from forge_schema.model.attempt_records import Tested as OneTest
from forge_schema.model.states import Reason, State, Verdict
from forge_schema.read.runs import Benchmarks
from support.client.reaching import WAYS, reaching
from support.gangs.runs import running as running_gang
from support.http.api import SPEC
from support.queue.rig import spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.http.api import Api
    from support.queue.rig import Rig

BATCHES = {"kind": "benchmark", "sweep": "bench-1", "backoff_s": 0}


@pytest.fixture(params=WAYS)
def client(request: pytest.FixtureRequest, rig: Rig, tmp_path: Path) -> Iterator[Client]:
    with reaching(request.param, rig, (tmp_path / "store").as_uri()) as client:
        yield client


def found(rig: Rig, **params: object) -> int:
    """Have one point of a sweep run twice: only the second attempt counts."""
    job_id = rig.submit(**BATCHES, parameters=params)
    worker = rig.worker()
    first = worker.claim_one()
    assert rig.records.add_result(first.fence, {"ms": -1})
    rig.finish(first, Reason.PREEMPTED)
    second = worker.claim_one()
    rig.clock.advance(2)
    assert rig.records.add_result(second.fence, {"ms": 7.5, "of": {"n": 1}})
    rig.finish(second)
    return job_id


def test_the_result_of_several_machines_is_that_of_rank_0(client: Client, rig: Rig) -> None:
    def results() -> list[object]:
        return [client.job(run.job_id).found(rank=rank) for rank in range(3)]

    run = running_gang(rig)
    assert rig.records.add_result(run.fences[1], {"of": 1})
    run.end(1)
    assert results() == [None, {"of": 1}, None]
    assert client.job(run.job_id).found() is None
    assert rig.records.add_result(run.fences[0], {"of": 0})
    for rank in (0, 2):
        run.end(rank)
    assert results() == [{"of": 0}, {"of": 1}, None]
    assert client.job(run.job_id).found() == {"of": 0}


def test_a_sweep_is_read_compared_and_cancelled(client: Client, rig: Rig) -> None:
    done = found(rig, batch=16)
    running = rig.submit(**BATCHES, parameters={"batch": 32})
    rig.worker().claim_one()
    ready, later = rig.submit(**BATCHES), rig.submit(**BATCHES, delay_s=60)
    rig.submit(**{**BATCHES, "owner": "bob"})
    findings = client.backend.findings
    assert findings.result(done).values == {"ms": 7.5, "of": {"n": 1}}
    assert client.job(done).found() == {"ms": 7.5, "of": {"n": 1}}
    assert findings.result(running).values is None
    counts = {"queued": 2, "running": 1, "succeeded": 1}
    assert findings.sweep("bench-1") == counts
    assert findings.sweep("bench-1", owner="bob") == {"queued": 1}
    points = list(all_points(findings, "bench-1"))
    assert [point.job_id for point in points] == [done, running, ready, later]
    assert (points[0].parameters, points[0].result) == ({"batch": 16}, {"ms": 7.5, "of": {"n": 1}})
    assert [point.result for point in points[1:]] == [None] * 3
    (row,) = client.backend.report("benchmark_results", count=10)
    assert (row["sweep"], row["job_id"], row["result"]["ms"]) == ("bench-1", done, 7.5)
    cancelled = findings.cancel_sweep("bench-1")
    assert (cancelled.cancelled, cancelled.running) == (2, 1)
    again = findings.cancel_sweep("bench-1")
    assert (again.cancelled, again.running) == (0, 1)
    assert [rig.state(job) for job in (done, ready, later)] == ["succeeded"] + ["cancelled"] * 2
    assert rig.actions(running).count("asked to cancel") == 1
    assert rig.actions(ready) == ["submitted", "cancelled"]
    for ask in (findings.sweep, findings.points, findings.cancel_sweep):
        with pytest.raises(ClientError) as refused:
            ask("nothing")
        assert (refused.value.code, refused.value.exit_code) == ("sweep_unknown", 3)


def test_tests_are_read_page_by_page(client: Client, rig: Rig) -> None:
    job_id = rig.submit(kind="test", backoff_s=0)
    worker = rig.worker()
    first = worker.claim_one()
    old = [OneTest(0, "s", "old", Verdict.ERROR)]
    assert rig.records.add_tests(first.fence, old)
    rig.finish(first, Reason.EXIT_CODE, exit_code=1)
    second = worker.claim_one()
    wanted = [
        OneTest(n, f"s{n % 2}", f"t{n}", Verdict.FAILED if n % 500 == 3 else Verdict.PASSED, n / 8)
        for n in range(2300)
    ]
    for at in range(0, 2300, 100):
        assert rig.records.add_tests(second.fence, wanted[at : at + 100])
    assert rig.records.add_tests(second.fence, wanted[2250:])
    rig.finish(second, Reason.EXIT_CODE, exit_code=1)
    rows = client.job(job_id).tests()
    assert [(r.number, r.suite, r.name, r.verdict, r.seconds) for r in rows] == [
        (t.number, t.suite, t.name, t.verdict, t.seconds) for t in wanted
    ]
    worse = all_tests(client.backend.findings, job_id, verdicts=("failed", "error"))
    assert [row.number for row in worse] == [3, 503, 1003, 1503, 2003]
    assert [row.name for row in all_tests(client.backend.findings, job_id, attempt=1)] == ["old"]
    view = client.backend.report("test_results", count=5000)
    assert (len(view), sum(row["verdict"] == "failed" for row in view)) == (2301, 5)
    with pytest.raises(ClientError):
        client.backend.findings.tests(job_id, verdicts=["splendid"])


def test_why_there_are_no_tests_to_list_is_told(client: Client, rig: Rig) -> None:
    job_id = rig.submit(kind="test")
    attempt = rig.worker().claim_one()
    backend = client.backend
    assert "is stored yet: it is running" in why_none(backend, job_id)
    rig.finish(attempt)
    assert f"no report of job {job_id} was stored; it suc" in why_none(backend, job_id)
    assert f"no report of attempt 2 of job {job_id} was" in why_none(backend, job_id, attempt=2)
    assert why_none(backend, with_a_report(rig)) == "none of its tests failed"


def with_a_report(rig: Rig) -> int:
    job_id = rig.submit(kind="test")
    attempt = rig.worker("other").claim_one()
    assert rig.records.add_tests(attempt.fence, [OneTest(0, "s", "t", Verdict.PASSED)])
    rig.finish(attempt)
    return job_id


def test_a_sweep_of_thousands_is_one_statement_and_cancelled_by_one(rig: Rig) -> None:
    jobs = [spec(**BATCHES, parameters={"n": n}) for n in range(5000)]
    ids = rig.queue.submit(jobs)
    assert len(set(ids)) == 5000
    assert rig.row("SELECT count(DISTINCT xmin::text) AS n FROM job")["n"] == 1
    rig.worker().claim(100)
    sweeps = Benchmarks(rig.database, owner="ann", actor="user:ann")
    assert sweeps.states("bench-1") == {"ready": 4900, "running": 100}
    assert sweeps.cancel("bench-1") == {"cancelled": 4900, "running": 100}
    assert (rig.count("ready"), rig.count("outcome")) == (0, 4900)


def test_a_sweep_cancelled_while_its_jobs_are_claimed_and_end(rig: Rig) -> None:
    ids = rig.queue.submit([spec(**BATCHES) for _ in range(400)])
    sweeps = Benchmarks(rig.database, owner="ann", actor="user:ann")
    workers = [rig.worker(f"w{n}") for n in range(2)]

    def works(number: int) -> None:
        while grants := workers[number].claim(7):
            for grant in grants:
                rig.finish(grant)

    with ThreadPoolExecutor() as pool:
        working = [pool.submit(works, n) for n in range(2)]
        cancelling = [pool.submit(sweeps.cancel, "bench-1") for _ in range(2)]
        for one in working:
            one.result(60)
        for each in cancelling:
            each.result(60)
    ended = [rig.state(job_id) for job_id in ids]
    assert set(ended) <= {State.SUCCEEDED, State.CANCELLED}
    assert rig.count("outcome") == 400
    assert sum(len(rig.places(job_id)) for job_id in ids) == 400


def test_a_sweep_is_hidden_from_other_owners(api: Api) -> None:
    ann, bob = api.key("ann"), api.key("bob")
    job_id = ann.submit(**BATCHES, parameters={"batch": 1})
    for path in ("", "/points"):
        assert bob.call("GET", f"/api/v1/queue/sweeps/bench-1{path}").status_code == 404
        assert bob.call("GET", f"/api/v1/queue/sweeps/bench-1{path}?owner=ann").status_code == 403
    assert bob.call("POST", "/api/v1/queue/sweeps/bench-1/cancel").status_code == 404
    for what in ("tests", "result"):
        assert bob.call("GET", f"/api/v1/queue/jobs/{job_id}/{what}").status_code == 404
    assert api.rig.state(job_id) == State.READY
    many = [{**SPEC, **BATCHES, "parameters": {"n": n}} for n in range(4000)]
    assert len(set(ann.post("/api/v1/queue/submit", {"jobs": many})["job_ids"])) == 4000
