"""Ends that HTTP workers report while a statement is under way share the next one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.database.pool import DatabaseUnreachable
from psycopg.errors import LockNotAvailable
from support.http.api import opened
from support.http.http_worker import RawWorker, good, lease, raw_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    import httpx
    from forge_schema.model.lease import End, Ended
    from support.http.api import Api
    from support.queue.rig import Rig
    from support.waiting import Eventually

WORKERS = 4
REASONS = ["exit_code", "drained", "succeeded", "oom"]


@pytest.fixture
def api(rig: Rig, tmp_path: Path) -> Iterator[Api]:
    with opened(rig, tmp_path / "store") as made:
        yield made


class Line:
    """The server's line: its first statement waits until `may` is set."""

    def __init__(self, api: Api) -> None:
        self.finishing = api.services.finishing
        self.statements: list[int] = []
        self.asked, self.may = Event(), Event()
        self.error: Exception | None = None
        self._finish: Callable[[Sequence[End]], list[Ended]] = self.finishing._finish
        self.finishing._finish = self._slow

    def _slow(self, ends: Sequence[End]) -> list[Ended]:
        self.statements.append(len(ends))
        if not self.asked.is_set():
            self.asked.set()
            assert self.may.wait(60)
        elif self.error and len(ends) > 1:
            raise self.error
        return self._finish(ends)

    def report(
        self, held: list[tuple[RawWorker, dict[str, Any]]], eventually: Eventually
    ) -> list[httpx.Response]:
        """Report the first end, and the others while its statement is under way."""
        with ThreadPoolExecutor(WORKERS) as threads:
            told: list[Future[httpx.Response]] = []
            for (worker, grant), reason in zip(held, REASONS, strict=True):
                body = {"token": grant["token"], "nonce": grant["nonce"], "end": {"reason": reason}}
                path = f"/job/{grant['job_id']}/status"
                told.append(threads.submit(worker.post, path, body))
                assert self.asked.wait(60)
            eventually(lambda: self.finishing.waiting == len(held) - 1)
            self.may.set()
            return [one.result() for one in told]


def held(api: Api) -> list[tuple[RawWorker, dict[str, Any]]]:
    """Let each worker claim a job."""
    api.rig.submit_many(WORKERS)
    workers = [raw_worker(api, f"w{n}") for n in range(WORKERS)]
    return [(worker, worker.claim()[0]) for worker in workers]


@pytest.mark.parametrize("broken", [False, True])
def test_ends_of_several_workers_share_a_statement_or_go_alone_if_it_fails(
    api: Api, eventually: Eventually, *, broken: bool
) -> None:
    claimed, line = held(api), Line(api)
    line.error = RuntimeError("one of these is no good") if broken else None
    answers = [good(one)["ended"] for one in line.report(claimed, eventually)]
    assert line.statements[:2] == [1, WORKERS - 1]
    assert line.statements[2:] == ([1] * (WORKERS - 1) if broken else [])
    assert [(one["job_id"], one["reason"], one["accepted"]) for one in answers] == [
        (grant["job_id"], reason, True) for (_, grant), reason in zip(claimed, REASONS, strict=True)
    ]


def test_a_group_that_no_database_answers_is_tried_once(api: Api, eventually: Eventually) -> None:
    claimed, line = held(api), Line(api)
    line.error = DatabaseUnreachable("the database does not answer")
    answers = line.report(claimed, eventually)
    assert line.statements == [1, WORKERS - 1]
    assert [one.status_code for one in answers] == [200, *[503] * (WORKERS - 1)]


def test_a_group_whose_statement_the_database_stopped_goes_alone(
    api: Api, eventually: Eventually
) -> None:
    claimed, line = held(api), Line(api)
    line.error = DatabaseUnreachable("the database does not answer: it waited for a lock")
    line.error.__cause__ = LockNotAvailable()
    assert [good(one)["ended"]["accepted"] for one in line.report(claimed, eventually)] == (
        [True] * WORKERS
    )


def test_another_workers_end_is_refused_before_it_joins_a_group(api: Api) -> None:
    claimed, line = held(api), Line(api)
    thief, (_, theirs) = claimed[-1][0], claimed[0]
    body = {"token": theirs["token"], "nonce": theirs["nonce"], "end": {"reason": "oom"}}
    assert thief.post(f"/job/{theirs['job_id']}/status", body).status_code == 404
    assert line.statements == []
    assert api.rig.places(theirs["job_id"]) == ["lease"]


def test_an_end_that_fails_alone_is_tried_once(api: Api) -> None:
    (worker, grant), *_ = held(api)
    tried: list[int] = []

    def broken(ends: Sequence[End]) -> list[Ended]:
        tried.append(len(ends))
        raise DatabaseUnreachable("no good")

    api.services.finishing._finish = broken
    body = {"token": grant["token"], "nonce": grant["nonce"], "end": {"reason": "oom"}}
    assert worker.post(f"/job/{grant['job_id']}/status", body).status_code == 503
    assert tried == [1]


def test_a_worker_that_claims_nothing_joins_the_line(api: Api) -> None:
    (worker, grant), *_ = held(api)
    line = Line(api)
    line.may.set()
    body = {
        "boot_id": str(worker.boot_id),
        "free": {"cpus": 0, "memory_mb": 0, "disk_mb": 0},
        "count": 0,
        "ends": [lease(grant)],
    }
    assert good(worker.post("/claim", body))["ended"][0]["state"] == "succeeded"
    assert line.statements == [1]
