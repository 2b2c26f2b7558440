"""A job's output, read while it is written and afterwards, directly and over HTTP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from forge_client import Client
from forge_client.errors import ClientError
from forge_client.results.log_reader import LogPart, LogPiece, LogReading, follow
from forge_client.sdk.job import Job
from forge_schema.model.attempt_records import MetricRecord
from forge_schema.model.states import Phase, Reason, Role, StateWord
from support.client.reaching import WAYS, key, reaching
from support.http.server import served, server_settings
from support.queue.holder import Holder

if TYPE_CHECKING:
    from pathlib import Path

    from forge_client.backend import Backend
    from pydantic import JsonValue
    from support.queue.rig import Rig

# The chunks of the first attempt, more than fit on a page, and those of both.
FIRST, ALL = 102, 110


def followed(backend: Backend, job_id: int) -> bytes:
    """Follow a job to its end and return its output."""
    return b"".join(item.data for item in follow(backend, job_id) if isinstance(item, LogPiece))


def test_a_follower_sees_everything_once_from_any_moment(rig: Rig, tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    job_id = rig.submit(backoff_s=0)
    with ExitStack() as stack:
        clients = [stack.enter_context(reaching(way, rig, store)) for way in WAYS]
        pool = stack.enter_context(ThreadPoolExecutor(4))
        backends = [client.backend for client in clients]
        early = [pool.submit(followed, backend, job_id) for backend in backends]
        first = Holder(rig, store)
        for number in range(FIRST):
            first.write(b"%d\n" % number)
        first.end(Reason.PREEMPTED)
        late = [pool.submit(followed, backend, job_id) for backend in backends]
        rig.clock.advance(600)
        second = Holder(rig, store)
        for number in range(FIRST, ALL):
            second.write(b"%d\n" % number)
        second.end()
        whole = b"".join(b"%d\n" % number for number in range(ALL))
        assert [one.result(300) == whole for one in (*early, *late)] == [True] * 4
        for client in clients:
            parts(rig, client, job_id)


def parts(rig: Rig, client: Client, job_id: int) -> None:
    """Read parts of the log, chosen by the queue itself."""
    since = rig.clock.now
    for part, wanted in {
        LogPart(since=since): range(FIRST, ALL),
        LogPart(attempt=1, tail=2): range(FIRST - 2, FIRST),
        LogPart(tail=ALL - FIRST + 1): range(FIRST - 1, ALL),
        LogPart(since=since, tail=ALL): range(FIRST, ALL),
        LogPart(rank=0, tail=1): range(ALL - 1, ALL),
        LogPart(rank=1): range(0),
    }.items():
        pieces = LogReading(client.backend, client.backend.job(job_id), part).new(final=True)
        read = b"".join(piece.data for piece in pieces)
        assert read == b"".join(b"%d\n" % number for number in wanted), part


@pytest.mark.parametrize("way", WAYS)
def test_the_metrics_that_a_job_wrote(rig: Rig, tmp_path: Path, way: str) -> None:
    with reaching(way, rig, (tmp_path / "store").as_uri()) as client:
        job = Job(client.backend, rig.submit(backoff_s=0))
        assert (job.metrics(), job.last_metrics()) == ([], {})
        worker = rig.worker()
        for attempt in (1, 2):
            grant = worker.claim_one()
            rig.queue.report(grant.fence, Phase.RUNNING)
            lines: list[dict[str, JsonValue]] = [
                {"loss": 1, "note": {"n": attempt}},
                {"loss": 0.5, "note": {"n": attempt}},
                {"last": True, "step": 2},
            ]
            told = [MetricRecord(n, float(n), values) for n, values in enumerate(lines)]
            # As of another file of TensorBoard.
            told.append(MetricRecord(3, 1.0, {"step": 1}))
            rig.records.add_metrics(grant.fence, told)
            rig.finish(grant, Reason.PREEMPTED if attempt == 1 else Reason.SUCCEEDED)
        assert [(one.attempt, one.number, one.step) for one in job.metrics()] == [
            (attempt, number, step)
            for attempt in (1, 2)
            for number, step in enumerate((0, 1, 2, 1))
        ]
        assert [one.values.get("loss") for one in job.metrics(attempt=2)] == [1.0, 0.5, None, None]
        assert job.last_metrics() == {"loss": 0.5, "note": {"n": 2}, "last": True, "step": 2}
        assert job.last_metrics(attempt=1)["note"] == {"n": 1}
        (listed,) = client.jobs()
        assert listed.metrics == {"loss": 0.5}
        assert listed.ran_s is not None
        assert (job.metrics(rank=1), job.last_metrics(attempt=3)) == ([], {})
        found = client.backend.findings.last_metrics(job.id)
        assert {one.key: (one.step, one.attempt) for one in found}["loss"] == (1.0, 2)
        with pytest.raises(ClientError, match="no job"):
            client.backend.findings.metrics(job.id + 1)


def test_the_overview_is_the_same_over_http_and_an_owner_sees_the_own_jobs(
    rig: Rig, tmp_path: Path
) -> None:
    store = (tmp_path / "store").as_uri()
    rig.submit(owner="ann", name="hers")
    rig.worker().claim_one()
    rig.submit(owner="bob", name="his")
    with reaching("direct", rig, store) as direct, served(server_settings(rig.url, store)) as url:
        with Client(url=url, api_key=key(rig)) as client:
            seen = client.backend.overview(jobs=5, workers=5)
        assert seen == direct.backend.overview(jobs=5, workers=5)
        assert (seen.states[StateWord.RUNNING], [job.name for job in seen.jobs]) == (1, ["hers"])
        with Client(url=url, api_key=key(rig, "bob", Role.VIEWER)) as client:
            bobs = client.backend.overview(jobs=5, workers=5)
    assert (bobs.states[StateWord.QUEUED], bobs.states[StateWord.RUNNING], bobs.jobs) == (1, 0, [])
    assert bobs.oldest
    assert bobs.oldest.name == "his"
