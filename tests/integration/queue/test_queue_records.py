"""Index rows of stored objects: written by the holder of the lease, and by nobody else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest
from forge_schema.model.attempt_records import (
    ArtifactRecord,
    CheckpointRecord,
    LogChunkRecord,
    MetricRecord,
    Sample,
)
from forge_schema.model.attempt_records import Tested as OneTest
from forge_schema.model.lease import End, Fence, fence_params
from forge_schema.model.states import Phase, Reason, Verdict, WorkerStatus
from psycopg.types.json import Jsonb
from support.database.databases import holding
from support.database.explain import rows_handled
from support.queue.named_records import NamedRecords
from support.queue.rig import stale

if TYPE_CHECKING:
    from collections.abc import Callable

    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig, Worker

SHA = "ab" * 32
CHUNK = LogChunkRecord(number=0, key="k/0", start=0, bytes=5, sha256=SHA)
CHECKPOINT = CheckpointRecord(number=1, key="k/1", files=2, bytes=10)
ARTIFACT = ArtifactRecord(path="model/w.bin", key="k/w", bytes=3, sha256=SHA)
LINE = MetricRecord(number=0, step=1.0, values={"loss": 0.5})
TESTED = OneTest(0, "suite", "test", Verdict.FAILED, 0.5, "said")

WRITES: dict[str, Callable[[NamedRecords, Fence], bool]] = {
    "log_chunk": lambda records, fence: records.add_log_chunk(fence, CHUNK),
    "checkpoint": lambda records, fence: records.add_checkpoint(fence, CHECKPOINT),
    "artifact": lambda records, fence: records.add_artifacts(fence, [ARTIFACT]),
    "metric": lambda records, fence: records.add_metrics(fence, [LINE], progress=0.5),
    "result": lambda records, fence: records.add_result(fence, {"a": 1}),
    "test_result": lambda records, fence: records.add_tests(fence, [TESTED]),
    "sample": lambda records, fence: records.add_samples(fence, [Sample(0, {"cpu": 1})]),
}
every_write = pytest.mark.parametrize("table", WRITES)


def claimed(rig: Rig) -> tuple[Worker, Grant]:
    rig.submit(backoff_s=0)
    worker = rig.worker()
    return worker, worker.claim_one()


@every_write
def test_the_holder_writes_and_a_repeat_changes_nothing(rig: Rig, table: str) -> None:
    _, grant = claimed(rig)
    assert WRITES[table](rig.records, grant.fence)
    row = rig.row(f"SELECT * FROM {table}")
    assert (row["job_id"], row["token"], row["attempt"]) == (
        grant.fence.job_id,
        grant.fence.token,
        1,
    )
    rig.clock.advance(1)
    assert WRITES[table](rig.records, grant.fence)
    assert rig.row(f"SELECT * FROM {table}") == row


@every_write
@pytest.mark.parametrize("late", ["expired and requeued", "finished", "requeued and running again"])
def test_a_late_writer_changes_nothing(rig: Rig, table: str, late: str) -> None:
    worker, old = claimed(rig)
    if late == "finished":
        rig.finish(old)
    else:
        rig.expire()
        rig.tick.run()
    if late == "requeued and running again":
        worker.claim_one()
    before = rig.rows("SELECT * FROM lease")
    assert not WRITES[table](rig.records, old.fence)
    assert (rig.count(table), rig.rows("SELECT * FROM lease")) == (0, before)


@every_write
@pytest.mark.parametrize("wrong", ["token", "nonce", "job"])
def test_a_wrong_fence_writes_nothing(rig: Rig, table: str, wrong: str) -> None:
    _, grant = claimed(rig)
    fences = {
        "token": stale(grant, token=grant.fence.token + 1),
        "nonce": stale(grant, nonce=uuid4()),
        "job": stale(grant, job_id=grant.fence.job_id + 1),
    }
    assert not WRITES[table](rig.records, fences[wrong])
    assert rig.count(table) == 0


@every_write
def test_a_write_that_meets_the_end_of_the_lease_is_whole_or_absent(rig: Rig, table: str) -> None:
    _, grant = claimed(rig)
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            queue.finish([End(grant.fence, Reason.SUCCEEDED)])
            written = pool.submit(WRITES[table], rig.records, grant.fence)
            rig.wait_until_blocked()
        assert not written.result(timeout=120)
    assert rig.count(table) == 0


@every_write
def test_a_write_is_accepted_until_an_expired_lease_is_taken(rig: Rig, table: str) -> None:
    _, grant = claimed(rig)
    rig.expire()
    assert WRITES[table](rig.records, grant.fence)


@every_write
def test_a_write_repeated_beside_its_first_try_is_kept_once(rig: Rig, table: str) -> None:
    _, grant = claimed(rig)
    with ThreadPoolExecutor(1) as pool:
        with holding(rig.url) as database:
            assert WRITES[table](NamedRecords(database), grant.fence)
            again = pool.submit(WRITES[table], rig.records, grant.fence)
            rig.wait_until_blocked()
        assert again.result(timeout=120)
    assert rig.count(table) == 1


def test_writing_does_not_wait_for_a_renewal_that_is_under_way(rig: Rig) -> None:
    worker, grant = claimed(rig)
    with rig.uncommitted() as queue:
        queue.renew(worker.id, worker.machine.boot_id, [grant.fence], WorkerStatus.BUSY)
        assert rig.records.add_log_chunk(grant.fence, CHUNK)


def test_the_newest_checkpoint_is_that_of_the_last_attempt_that_made_one(rig: Rig) -> None:
    worker, first = claimed(rig)
    job_id = first.fence.job_id
    assert rig.records.latest_checkpoint(job_id) is None
    for number in (1, 2, 9):
        rig.records.add_checkpoint(first.fence, replace(CHECKPOINT, number=number))
    rig.finish(first, Reason.PREEMPTED)
    second = worker.claim_one()
    kept = rig.records.latest_checkpoint(job_id)
    assert kept is not None
    assert (kept["attempt"], kept["number"]) == (1, 9)
    rig.records.add_checkpoint(second.fence, replace(CHECKPOINT, number=1, key="k/new"))
    kept = rig.records.latest_checkpoint(job_id)
    assert kept is not None
    assert (kept["attempt"], kept["number"], kept["key"]) == (2, 1, "k/new")


def test_the_artifacts_of_a_job_are_those_of_its_accepted_attempt(rig: Rig) -> None:
    worker, first = claimed(rig)
    job_id = first.fence.job_id
    rig.records.add_artifacts(first.fence, [ARTIFACT])
    assert [row["attempt"] for row in rig.jobs.artifacts(job_id)] == [1]
    rig.finish(first, Reason.EXIT_CODE)
    second = worker.claim_one()
    assert rig.finish(second).accepted
    assert rig.jobs.artifacts(job_id) == []


def test_artifacts_of_the_accepted_attempt_come_in_the_order_of_their_paths(rig: Rig) -> None:
    worker, first = claimed(rig)
    rig.records.add_artifacts(first.fence, [ARTIFACT])
    rig.finish(first, Reason.EXIT_CODE)
    second = worker.claim_one()
    files = [replace(ARTIFACT, path=path) for path in ("b", "a/x", "a")]
    rig.records.add_artifacts(second.fence, files)
    rig.finish(second)
    shown = rig.jobs.artifacts(first.fence.job_id)
    assert [(row["path"], row["attempt"]) for row in shown] == [("a", 2), ("a/x", 2), ("b", 2)]


def test_log_chunks_are_read_in_order_across_attempts_and_from_a_place_on(rig: Rig) -> None:
    worker, first = claimed(rig)
    job_id = first.fence.job_id
    for number in (1, 0, 2):
        rig.records.add_log_chunk(first.fence, replace(CHUNK, number=number, start=5 * number))
    rig.finish(first, Reason.EXIT_CODE)
    second = worker.claim_one()
    rig.records.add_log_chunk(second.fence, CHUNK)
    rows = rig.jobs.log_chunks(job_id, after=(0, 0, -1))
    assert [(row["attempt"], row["number"]) for row in rows] == [(1, 0), (1, 1), (1, 2), (2, 0)]
    place = (rows[1]["token"], rows[1]["rank"], rows[1]["number"])
    assert rig.jobs.log_chunks(job_id, after=place) == rows[2:]
    assert rig.jobs.log_chunks(job_id, after=(0, 0, -1), attempt=2) == rows[3:]


def test_metrics_are_read_in_order_and_move_the_progress(rig: Rig) -> None:
    _, grant = claimed(rig)
    rig.queue.report(grant.fence, Phase.RUNNING)
    lines = [MetricRecord(n, float(n), {"loss": 1 / (n + 1)}) for n in range(3)]
    rig.records.add_metrics(grant.fence, lines[:2], progress=0.6)
    rig.records.add_metrics(grant.fence, lines, progress=None)
    job_id = grant.fence.job_id
    assert [row["number"] for row in rig.jobs.metrics(job_id)] == [0, 1, 2]
    assert rig.jobs.metrics(job_id, after=(grant.fence.token, 1))[0]["values"] == {"loss": 1 / 3}
    assert rig.jobs.job(job_id)["progress"] == 0.6


def test_the_cost_of_a_line_of_metrics_does_not_grow_with_their_number(rig: Rig) -> None:
    _, grant = claimed(rig)
    params = {**fence_params(grant.fence), "progress": None}

    def handled(count: int) -> int:
        lines = [asdict(MetricRecord(n, n, {"step": n, "loss": 1 / (n + 1)})) for n in range(count)]
        named = {**params, "lines": Jsonb(lines), "kept": count}
        with psycopg.connect(rig.url, autocommit=True) as connection:
            return rows_handled(connection, "add_metrics", named)

    assert handled(16_000) < 17 * handled(1000)
