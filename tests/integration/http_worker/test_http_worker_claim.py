"""Claims that wait, and hints: who is woken, what a caller who left costs, what is kept of whom."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from forge_functions.routes.workers import long_claim
from forge_functions.streams.matching import Matching
from forge_schema.model.states import Command
from support.http.api import opened, problem
from support.http.http_worker import FREE, RawWorker, good, lease, raw_worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

    import httpx
    from support.http.api import Api
    from support.queue.rig import Rig
    from support.waiting import Eventually

WAIT_S = 60.0
# Less than a claim or a stream waits when nothing wakes it.
SOON_S = 50.0


@pytest.fixture
def api(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    # A caller that is not woken gets no answer, or an empty one.
    monkeypatch.setattr(long_claim, "LOOK_S", 3600)
    with opened(rig, tmp_path / "store", long_poll_s=WAIT_S) as made:
        yield made


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(60) as made:
        yield made


@pytest.fixture
def worker(api: Api) -> RawWorker:
    return raw_worker(api)


def waiting(worker: RawWorker, pool: ThreadPoolExecutor, **body: Any) -> Future[httpx.Response]:  # noqa: ANN401  fields of all types
    """Begin a claim that waits."""
    whole = {"boot_id": str(worker.boot_id), "free": FREE, "wait_s": 60, **body}
    return pool.submit(worker.post, "/claim", whole)


def until_waiting(api: Api, eventually: Eventually, count: int = 1) -> None:
    eventually(lambda: api.services.hub.waiting == count)


def until_listening(worker: RawWorker, eventually: Eventually) -> None:
    """Wait until the server has begun to listen, of which it tells every waiting caller."""
    eventually(lambda: good(worker.get("/stream", params={"wait_s": 1}))["items"] == [])


def test_a_claim_that_waits_is_answered_as_soon_as_there_is_work(
    worker: RawWorker, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    answer = waiting(worker, pool)
    until_waiting(worker.api, eventually)
    # A lane that it did not know when it began to wait.
    job = worker.api.rig.submit(queue="new")
    (grant,) = good(answer.result(WAIT_S))["grants"]
    assert grant["job_id"] == job


def test_a_claim_waits_no_longer_than_it_may(rig: Rig, tmp_path: Path) -> None:
    for long_poll_s, wait_s in ((0.0, 60), (0.3, 60), (3600.0, 0.3), (3600.0, 0)):
        with opened(rig, tmp_path / "store", long_poll_s=long_poll_s) as api:
            worker = raw_worker(api, f"w{long_poll_s}-{wait_s}")
            body = {"boot_id": str(worker.boot_id), "free": FREE, "wait_s": wait_s}
            began = monotonic()
            assert good(worker.post("/claim", body, timeout=SOON_S))["grants"] == []
            assert monotonic() - began >= min(long_poll_s, wait_s)


def test_a_result_does_not_wait(worker: RawWorker) -> None:
    worker.api.rig.submit()
    (grant,) = worker.claim()
    body = {"boot_id": str(worker.boot_id), "free": FREE, "wait_s": 60, "ends": [lease(grant)]}
    assert good(worker.post("/claim", body, timeout=SOON_S))["grants"] == []


def test_many_wait_on_few_threads(
    api: Api, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    workers = [raw_worker(api, f"w{n}") for n in range(50)]
    answers = [waiting(worker, pool) for worker in workers]
    until_waiting(api, eventually, 50)
    # More claims wait than there are threads, and another request is still served at once.
    workers[0].heartbeat()
    assert not any(answer.done() for answer in answers)
    with api.rig.database.connection() as connection:
        busy = connection.execute(
            "SELECT count(*) AS n FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE '%LISTEN forge'"
        ).fetchall()
    assert busy[0]["n"] == 1
    jobs = api.rig.submit_many(50)
    grants = [grant for answer in answers for grant in good(answer.result(WAIT_S))["grants"]]
    assert sorted(grant["job_id"] for grant in grants) == jobs
    assert api.services.hub.waiting == 0


def test_a_worker_that_is_to_drain_waits_no_longer(
    worker: RawWorker, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    answer = waiting(worker, pool)
    until_waiting(worker.api, eventually)
    worker.api.rig.registry.command(worker.id, Command.DRAIN)
    assert good(answer.result(SOON_S))["grants"] == []


def test_what_is_asked_of_another_does_not_wake(
    worker: RawWorker, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    other = raw_worker(worker.api, "other")
    answer, others = waiting(worker, pool), waiting(other, pool)
    until_waiting(worker.api, eventually, 2)
    worker.api.rig.registry.command(other.id, Command.DRAIN)
    assert good(others.result(SOON_S))["grants"] == []
    assert not answer.done()
    worker.api.rig.submit()
    assert len(good(answer.result(WAIT_S))["grants"]) == 1


def test_a_token_that_was_replaced_gets_nothing_by_waiting(
    worker: RawWorker, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    answer = waiting(worker, pool)
    until_waiting(worker.api, eventually)
    worker.api.workers.rotate(worker.id)
    job = worker.api.rig.submit()
    problem(answer.result(WAIT_S), 401, "unauthenticated")
    assert worker.api.rig.places(job) == ["ready"]


def test_a_boot_that_was_followed_by_another_gets_nothing_by_waiting(
    worker: RawWorker, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    answer = waiting(worker, pool)
    until_waiting(worker.api, eventually)
    worker.boot_id = uuid4()
    worker.register()
    job = worker.api.rig.submit()
    # Jobs wake only the boot that there is; this is for every worker.
    worker.api.rig.rows("NOTIFY forge")
    problem(answer.result(WAIT_S), 409, "worker_unknown")
    assert worker.api.rig.places(job) == ["ready"]


@contextmanager
def leaving(worker: RawWorker) -> Iterator[None]:
    """Send a claim that waits, and be gone at the end of the block."""
    body = {"boot_id": str(worker.boot_id), "free": FREE, "wait_s": 60}
    headers = {**worker.headers, "Content-Type": "application/json"}
    with closing(HTTPConnection(urlsplit(worker.api.url).netloc, timeout=60)) as connection:
        connection.request("POST", "/api/v1/workers/claim", json.dumps(body), headers)
        yield


def test_who_leaves_while_it_waits_gets_nothing(worker: RawWorker, eventually: Eventually) -> None:
    api = worker.api
    with leaving(worker):
        until_waiting(api, eventually)
    eventually(lambda: api.services.hub.waiting == 0, timeout=SOON_S)
    job = api.rig.submit()
    assert api.rig.places(job) == ["ready"]


def test_what_is_granted_to_who_has_left_is_given_back(
    worker: RawWorker, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    api, granted, left = worker.api, threading.Event(), threading.Event()
    claim = api.services.queue("x").__class__.finish_and_claim

    def slowly(self: Any, *args: Any, **more: Any) -> Any:  # noqa: ANN401  as the original
        answer = claim(self, *args, **more)
        if answer[1]:
            granted.set()
            assert left.wait(WAIT_S)
        return answer

    monkeypatch.setattr("forge_schema.queue.queue.Queue.finish_and_claim", slowly)
    job = api.rig.submit()
    with leaving(worker):
        assert granted.wait(WAIT_S)
    eventually(lambda: any("gone" in ear._heard for ear in api.services.hub._ears))
    left.set()
    eventually(lambda: api.rig.places(job) == ["ready"])
    (attempt,) = api.rig.jobs.attempts(job)
    assert attempt["reason"] == "drained"


def test_hints_are_heard_again_after_the_database_cut_the_connection(
    worker: RawWorker, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    answer = waiting(worker, pool)
    until_waiting(worker.api, eventually)
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND query LIKE '%%LISTEN forge'"
    )
    eventually(lambda: worker.api.rig.rows(cut))
    eventually(lambda: worker.api.rig.rows(cut))
    worker.api.rig.submit()
    assert len(good(answer.result(WAIT_S))["grants"]) == 1


def test_who_waits_is_let_go_when_the_server_leaves(
    worker: RawWorker, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    until_listening(worker, eventually)
    answer = waiting(worker, pool)
    stream = pool.submit(worker.get, "/stream", timeout=WAIT_S)
    until_waiting(worker.api, eventually, 2)
    worker.api.services.stopping.set()
    assert good(answer.result(SOON_S))["grants"] == []
    assert good(stream.result(SOON_S))["items"] == []


def test_a_stream_tells_of_work_and_of_what_is_asked(
    worker: RawWorker, eventually: Eventually
) -> None:
    api = worker.api
    headers = {**worker.headers, "Accept": "text/event-stream"}
    with api.http.stream("GET", "/api/v1/workers/stream", headers=headers) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        assert next(lines) == ": hello"
        # The server may connect to the database only after that, and says so then.
        until_waiting(api, eventually)
        api.rig.submit()
        assert wait_for(lines, "event: ready")
        api.rig.registry.command(worker.id, Command.DRAIN)
        assert wait_for(lines, "event: asked")
    eventually(lambda: api.services.hub.waiting == 0, timeout=SOON_S)


def test_a_stream_ends_when_its_token_is_replaced(
    worker: RawWorker, eventually: Eventually
) -> None:
    api = worker.api
    until_listening(worker, eventually)
    headers = {**worker.headers, "Accept": "text/event-stream"}
    with api.http.stream("GET", "/api/v1/workers/stream", headers=headers) as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": hello"
        api.rig.registry.command(worker.id, Command.DRAIN)
        assert wait_for(lines, "event: asked")
        api.workers.rotate(worker.id)
        assert not wait_for(lines, "event: asked")
    eventually(lambda: api.services.hub.waiting == 0, timeout=SOON_S)


def wait_for(lines: Iterator[str], wanted: str) -> bool:
    return any(line == wanted for line in lines)


def test_a_server_that_does_not_wait_does_not_stream(rig: Rig, tmp_path: Path) -> None:
    with opened(rig, tmp_path / "store", long_poll_s=0) as api:
        worker = raw_worker(api)
        headers = {**worker.headers, "Accept": "text/event-stream"}
        answer = api.http.get("/api/v1/workers/stream", headers=headers)
        assert good(answer) == {"items": [], "wait_s": 0}
        assert api.services.hub.waiting == 0


def test_the_next_hint_can_be_waited_for(
    worker: RawWorker, pool: ThreadPoolExecutor, eventually: Eventually
) -> None:
    until_listening(worker, eventually)
    answer = pool.submit(worker.get, "/stream")
    until_waiting(worker.api, eventually)
    assert worker.claim() == []
    worker.api.rig.submit()
    assert good(answer.result(WAIT_S)) == {"items": ["ready"], "wait_s": WAIT_S}
    for wait_s in (-1, 61, "nan", "x"):
        problem(worker.get("/stream", params={"wait_s": wait_s}), 422, "invalid")


def test_so_many_workers_are_remembered_and_no_more(rig: Rig) -> None:
    matching, boot = Matching(kept=3), uuid4()
    seen = []
    for worker_id in (1, 2, 3, 1, 4, 1, 2):
        with matching.lanes(rig.database, worker_id, boot) as lanes:
            seen.append(lanes)
    assert len(matching) == 3
    assert seen[0] is seen[3] is seen[5]
    assert seen[1] is not seen[6]
    with matching.lanes(rig.database, 1, uuid4()) as lanes:
        assert lanes is not seen[0]
