"""The overview: every figure of a small queue, computed by hand; owners see only their own jobs."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from forge_functions.health import Health, remember
from forge_schema.model.attempt_records import MetricRecord, Sample
from forge_schema.model.states import Phase, Reason, WorkerStatus
from forge_schema.read.overview import OverviewReader
from forge_schema.read.series import SPANS, Span, use_over_time
from forge_schema.storage.file_store import FileStore

if TYPE_CHECKING:
    from pathlib import Path

    from forge_schema.database.pool import Row
    from pydantic import JsonValue
    from support.queue.rig import Rig

GPUS = [{"uuid": f"GPU-{n}", "name": "L4", "vram_mb": 24_000} for n in range(4)]


def test_every_figure_of_a_small_queue(rig: Rig) -> None:
    steady = rig.worker("steady", gpus=GPUS, accelerator="cuda", price_per_hour=2.5)
    spare = rig.worker("spare", price_per_hour=0.5)
    for reason in (Reason.SUCCEEDED, Reason.EXIT_CODE):
        rig.submit(max_failures=0)
        rig.finish(spare.claim_one(), reason)
    rig.clock.advance(120)
    rig.submit(owner="bob")
    rig.finish(spare.claim_one())
    taken = rig.submit(name="taken", gpus=2)
    rig.finish(steady.claim_one(), Reason.PREEMPTED)
    grant = steady.claim_one()
    rig.queue.report(grant.fence, Phase.RUNNING)
    lines: list[dict[str, JsonValue]] = [{"loss": 0.9, "lr": 0.1, "note": "warm"}, {"loss": 0.5}]
    told = [MetricRecord(n, None, values) for n, values in enumerate(lines)]
    rig.records.add_metrics(grant.fence, told, progress=0.25)
    rig.records.add_samples(grant.fence, [Sample(0, {"memory_mb": 7}), Sample(1, {"memory_mb": 9})])
    condition = {"cpu_percent": 12.5}
    rig.queue.renew(steady.id, steady.machine.boot_id, [grant.fence], WorkerStatus.BUSY, condition)
    waits = rig.submit(name="waits", owner="bob")
    rig.submit(owner="bob", delay_s=3600)
    rig.clock.advance(40)
    rig.submit(after_ok=[rig.submit()])
    rig.queue.cancel(rig.submit(owner="bob"))
    rig.tick.run()

    seen = OverviewReader(rig.database).now(jobs=10, workers=10)
    assert seen["at"] == rig.clock.now
    assert seen["states"] == {"scheduled": 1, "held": 1, "ready": 2, "running": 1}
    oldest = {"job_id": waits, "name": "waits", "owner": "bob", "queue": "default"}
    assert seen["oldest"] == {**oldest, "paused": False, "waited_s": 40}
    assert seen["ended"] == {"succeeded": 2, "failed": 1, "cancelled": 1}
    assert [some(minute) for minute in seen["throughput"]] == [
        *[{}] * 57, {"succeeded": 1, "failed": 1}, {}, {"succeeded": 1, "cancelled": 1},
    ]  # fmt: skip
    assert seen["gpus"] == {"there": 4, "busy": 2}
    assert seen["fleet"] == {"offline": 1, "busy": 1}
    assert seen["cost_per_hour"] == 2.5
    assert seen["interruptions"] == {"preempted": 1}
    sweeper = {"ticked_at": rig.clock.now, "silent_s": 0, "late_s": 0}
    assert seen["sweeper"] == {**sweeper, "holds": False, "healthy": True}
    (job,) = seen["jobs"]
    assert (job["job_id"], job["attempt"], job["phase"]) == (taken, 2, "running")
    assert (job["worker"], job["gpus"], job["elapsed_s"]) == ("steady", 2, 40)
    assert (job["progress"], job["used"]) == (0.25, {"memory_mb": 9})
    assert job["metrics"] == {"loss": 0.5, "lr": 0.1}
    assert [(one["name"], one["leases"], one["gpus"]) for one in seen["workers"]] == [
        ("steady", 1, 4),
        ("spare", 0, 0),
    ]
    assert seen["workers"][0]["condition"] == condition
    of_bob(rig, waits)


def sweeper_is(rig: Rig, store: FileStore) -> tuple[str, str]:
    """Return what the server's health says of the sweeper."""
    return health_of("sweeper", rig, store)


def health_of(name: str, rig: Rig, store: FileStore) -> tuple[str, str]:
    """Return what a server's health says of one of its checks."""
    with closing(Health(lambda: rig.database, lambda: store, ttl=rig.queue.ttl)) as health:
        found = {one.name: one for one in health.findings()}[name]
    return found.standing.value, found.detail


def of_bob(rig: Rig, waits: int) -> None:
    """Check what an owner sees who has no running job."""
    seen = OverviewReader(rig.database).now(scope=["bob"], jobs=10, workers=1)
    assert seen["states"] == {"scheduled": 1, "held": 0, "ready": 1, "running": 0}
    assert seen["oldest"]["job_id"] == waits
    assert seen["ended"] == {"succeeded": 1, "failed": 0, "cancelled": 1}
    assert (seen["interruptions"], seen["jobs"], seen["cost_per_hour"]) == ({}, [], None)
    assert seen["gpus"] == {"there": 4, "busy": 0}
    assert [one["name"] for one in seen["workers"]] == ["steady"]


def test_a_store_without_the_queues_objects_is_told(rig: Rig, tmp_path: Path) -> None:
    ours, other = FileStore(tmp_path / "ours"), FileStore(tmp_path / "other")
    elsewhere = "the queue keeps its objects in another one; a server uses the wrong one"
    remember(rig.database, ours)
    assert health_of("store", rig, ours) == ("ok", "")
    assert health_of("store", rig, other) == ("unknown", elsewhere)
    # While it keeps nothing yet, any will do, and the server with the former one is told.
    remember(rig.database, other)
    assert health_of("store", rig, other) == ("ok", "")
    assert health_of("store", rig, ours) == ("unknown", elsewhere)
    rig.rows(
        "INSERT INTO log_chunk (job_id, token, rank, number, attempt, key, start, bytes, sha256,"
        " created_at) VALUES (1, 1, 0, 0, 1, 'jobs/1/log', 0, 2, repeat('0', 64), forge_now())"
    )
    rig.rows("UPDATE identity SET store = NULL RETURNING id")
    assert health_of("store", rig, ours) == ("unknown", elsewhere)
    other.put("jobs/1/log", b"hi")
    remember(rig.database, ours)
    assert rig.rows("SELECT store FROM identity") == [{"store": None}]
    assert health_of("store", rig, ours) == ("unknown", elsewhere)
    ours.put("jobs/1/log", b"hi")
    remember(rig.database, ours)
    assert rig.rows("SELECT store FROM identity") == [{"store": ours.url}]
    assert health_of("store", rig, other) == ("ok", "")


def test_a_long_time_is_not_seen_and_a_silent_sweeper_is(rig: Rig, tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    rig.submit()
    rig.finish(rig.worker().claim_one(), Reason.PREEMPTED)
    rig.finish(rig.worker().claim_one())
    held = rig.submit()
    rig.admin.set_queue("default", {"paused": True})
    rig.rows("UPDATE sweeper SET gap = '1 minute'")
    rig.clock.advance(3601)
    seen = OverviewReader(rig.database).now()
    assert (seen["ended"]["succeeded"], seen["interruptions"]) == (0, {"preempted": 1})
    assert (seen["oldest"]["job_id"], seen["oldest"]["paused"]) == (held, True)
    assert not seen["sweeper"]["healthy"]
    # Nothing is late, so it is no failure, but a schedule would wait.
    waits = "no sweeper has run for 1 h; schedules and retries wait for one"
    assert sweeper_is(rig, store) == ("unknown", waits)
    rig.rows("UPDATE sweeper SET ticked_at = NULL, served_since = forge_now() - interval '2 min'")
    assert "no sweeper has run for 2 min" in sweeper_is(rig, store)[1]
    rig.tick.run()
    assert sweeper_is(rig, store) == ("ok", "")
    rig.clock.advance(24 * 3600)
    assert OverviewReader(rig.database).now()["interruptions"] == {}


def test_the_use_of_the_last_hours_is_the_sum_of_all_stretches(rig: Rig) -> None:
    step = SPANS[Span.HOURS].step.total_seconds()

    def last(**only: Any) -> list[Row]:  # noqa: ANN401  parameters of all types
        # The minute that ends now.
        now = rig.clock.now - timedelta(minutes=1)
        return use_over_time(rig.database, Span.HOURS, now=now, **only)[-3:]

    def seen(**only: Any) -> list[tuple[float, ...]]:  # noqa: ANN401  as above
        names = ("waiting", "running", "gpus_held", "workers", "gpus", "begun")
        return [tuple(row[name] for name in names) for row in last(**only)]

    began = rig.clock.now
    box = rig.worker("box", gpus=GPUS, accelerator="cuda")
    box.renew()
    rig.submit(gpus=2, queue="night")
    rig.clock.advance(step / 2)
    # No more of the step has been than from its middle until now.
    (half,) = use_over_time(rig.database, Span.WEEK, now=rig.clock.now)[-1:]
    assert (half["at"], half["until"], half["waiting"]) == (began, rig.clock.now, 1)
    grant = box.claim_one()
    rig.submit(owner="bob")
    rig.clock.advance(step)
    rig.finish(grant, Reason.EXIT_CODE)
    rig.clock.advance(step * 1.5)
    rows = last()
    assert (rows[0]["at"], rows[-1]["until"]) == (began, rig.clock.now - timedelta(minutes=1))
    assert [(row["mean_s"], row["longest_s"]) for row in rows] == [(150, 150), *[(None, None)] * 2]
    # It waited for half a step, ran for one, and waits again after a pause of ten seconds; bob's
    # has waited since the middle of the first step.
    assert seen() == [
        (1, 0.5, 1, 1, 4, 1), (1, 0.5, 1, 1, 4, 0), (1, 0, 0, 1, 4, 0),
    ]  # fmt: skip
    assert seen(scope=["bob"]) == [(0.5, 0, 0, 1, 4, 0), *[(1, 0, 0, 1, 4, 0)] * 2]
    assert seen(queue="night")[0] == (0.5, 0.5, 1, 1, 4, 1)
    assert seen(worker_id=box.id)[1] == (0.0, 0.5, 1, 1, 4, 0)
    assert seen(worker_id=box.id + 1) == [(0, 0, 0, 0, 0, 0)] * 3


def some(counts: dict[str, Any]) -> dict[str, int]:
    """Return the nonzero counts of a minute."""
    return {name: count for name, count in counts.items() if name != "at" and count}
