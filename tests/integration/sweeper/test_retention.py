"""Old jobs leave with everything that is theirs; nothing unfinished, or needed by it, ever does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from forge_schema.explain import explain
from forge_schema.model import attempt_records as made
from forge_schema.model.job import JobUnknown
from forge_schema.model.spec import CheckpointSource
from forge_schema.model.states import Reason, State, Verdict
from forge_schema.queue.inputs import CheckpointUnknown
from forge_schema.queue.queue import Queue
from forge_schema.read.runs import Benchmarks
from forge_schema.storage import StoreError, StoreUnreachable
from forge_schema.storage.file_store import FileStore
from forge_schema.sweeper import retention as module
from forge_schema.sweeper.retention import Removed, Retention
from forge_schema.sweeper.sweeper import Sweeper
from support.at_once import at_once
from support.database.databases import holding
from support.queue.rig import spec

if TYPE_CHECKING:
    from pathlib import Path

    from forge_schema.model.lease import Grant
    from support.queue.rig import Rig

DAY = timedelta(days=1).total_seconds()
SHA = "ab" * 32
OF_A_JOB = (
    *("job", "outcome", "result", "test_result", "checkpoint", "artifact", "log_chunk"),
    *("dependency", "tombstone"),
)


@pytest.fixture
def store(rig: Rig, tmp_path: Path) -> FileStore:
    """A store, with a database without the empty months of the migration."""
    made = FileStore(tmp_path / "store")
    retention(rig, made).run()
    return made


def retention(rig: Rig, store: FileStore, *, days: int = 30, audit_months: int = 0) -> Retention:
    """Return one without a time limit."""
    return Retention(
        rig.database,
        actor="sweeper",
        store=store,
        jobs_days=days,
        audit_months=audit_months,
        clock=lambda: 0.0,
    )


def record(rig: Rig, store: FileStore, grant: Grant) -> None:
    """Store one of everything that an attempt can leave."""
    records, fence = rig.records, grant.fence
    prefix = f"jobs/{fence.job_id}/1-{fence.mark}/"
    for name in ("log", "checkpoint", "artifact", "without a row"):
        store.put(prefix + name, b"x")
    assert records.add_log_chunk(fence, made.LogChunkRecord(0, prefix + "log", 0, 1, SHA))
    assert records.add_checkpoint(fence, made.CheckpointRecord(0, prefix + "checkpoint", 1, 1))
    assert records.add_artifacts(fence, [made.ArtifactRecord("a", prefix + "artifact", 1, SHA)])
    assert records.add_result(fence, {"loss": 1})
    assert records.add_tests(fence, [made.Tested(0, "s", "n", Verdict.PASSED)])
    assert records.add_metrics(fence, [made.MetricRecord(0, None, {"loss": 1})])
    assert records.add_samples(fence, [made.Sample(0, {"cpu": 1})])


def ended(rig: Rig, store: FileStore, reason: Reason = Reason.SUCCEEDED, **changes: object) -> int:
    """Submit, run and end a job that leaves everything behind."""
    job = rig.submit(**changes)
    grant = rig.worker().claim_one()
    assert grant.job_id == job
    record(rig, store, grant)
    rig.finish(grant, reason)
    return job


def there(rig: Rig) -> set[int]:
    return {row["id"] for row in rig.rows("SELECT id FROM job")}


def test_an_old_job_leaves_with_everything_and_the_others_stay(rig: Rig, store: FileStore) -> None:
    needed = ended(rig, store)
    old = ended(rig, store, Reason.EXIT_CODE, max_failures=0, after=[needed])
    waiting = rig.submit(priority=-1, queue="slow")
    rig.clock.advance(29 * DAY)
    young = ended(rig, store)
    assert retention(rig, store).run() == Removed()
    rig.clock.advance(1 * DAY)
    assert retention(rig, store).run() == Removed(jobs=2, objects=8)
    assert there(rig) == {waiting, young}
    # What lies in months goes with its month.
    counts = {table: rig.count(table) for table in OF_A_JOB}
    assert counts == dict.fromkeys(OF_A_JOB, 1) | {"job": 2, "dependency": 0, "tombstone": 0}
    assert {key.key.split("/")[1] for key in store.list("jobs/")} == {str(young)}
    (told,) = rig.rows("SELECT detail FROM event WHERE action = 'jobs removed'")
    assert told["detail"] == {"jobs": 2, "first": needed, "last": old}
    assert "dispatched" not in rig.actions(old)
    with pytest.raises(JobUnknown) as unknown:
        rig.jobs.job(old)
    assert "retention" in (unknown.value.hint or "")
    with pytest.raises(JobUnknown):
        rig.queue.retry(old)
    with pytest.raises(JobUnknown):
        rig.submit(after_ok=[old])
    with pytest.raises((JobUnknown, CheckpointUnknown)):
        rig.submit(from_checkpoint=CheckpointSource(job_id=old))
    assert retention(rig, store).run() == Removed()


def test_a_job_that_is_removed_while_it_is_explained_is_unknown(rig: Rig, store: FileStore) -> None:
    job = ended(rig, store)
    rig.clock.advance(31 * DAY)
    rig.database.meanwhile["job"] = retention(rig, store).remove_jobs
    with pytest.raises(JobUnknown):
        explain(rig.database, job)
    assert there(rig) == set()


def test_a_key_belongs_to_its_job_for_as_long_as_that_stays(rig: Rig, store: FileStore) -> None:
    job = ended(rig, store, idempotency_key="k")
    assert rig.submit(idempotency_key="k") == job
    rig.clock.advance(31 * DAY)
    retention(rig, store).run()
    assert rig.submit(idempotency_key="k") > job


def test_what_an_unfinished_job_needs_stays_until_that_has_left(rig: Rig, store: FileStore) -> None:
    source, needed = ended(rig, store), ended(rig, store)
    heir = rig.submit(from_checkpoint=CheckpointSource(job_id=source), queue="later")
    blocker = rig.submit(queue="never")
    dependent = rig.submit(after=[needed, blocker])
    rig.clock.advance(90 * DAY)
    assert retention(rig, store).run().jobs == 0
    assert rig.state(dependent) == State.HELD
    rig.queue.cancel(dependent)
    rig.queue.cancel(heir)
    assert retention(rig, store).run().jobs == 2
    assert there(rig) == {heir, blocker, dependent}
    rig.clock.advance(30 * DAY)
    assert retention(rig, store).run().jobs == 2
    assert there(rig) == {blocker}


def test_a_schedule_outlives_its_last_job(rig: Rig, store: FileStore) -> None:
    job = ended(rig, store)
    rig.rows(
        "INSERT INTO schedule (owner, name, cron, spec, next_at, last_due_at, last_job_id)"
        " VALUES ('ann', 's', '0 3 * * *', '{}', now(), now(), %s)",
        job,
    )
    rig.clock.advance(31 * DAY)
    assert retention(rig, store).run().jobs == 1
    assert rig.row("SELECT last_job_id FROM schedule") == {"last_job_id": None}


def test_a_job_needed_at_the_same_moment_is_kept_or_reported_as_removed(
    rig: Rig, store: FileStore
) -> None:
    source, needed, failed = ended(rig, store), ended(rig, store), rig.submit(max_failures=0)
    rig.finish(rig.worker().claim_one(), Reason.EXIT_CODE)
    rig.clock.advance(31 * DAY)
    with rig.uncommitted() as other:
        other.submit([spec(from_checkpoint=CheckpointSource(job_id=source), queue="q")])
        other.submit([spec(after=[needed], queue="q")])
        other.retry(failed)
        assert retention(rig, store).remove_jobs() == 0
    assert there(rig) >= {source, needed, failed}
    last = ended(rig, store, priority=5)
    rig.clock.advance(31 * DAY)
    # It is found in the snapshot, and gone once its row can be locked.
    with holding(rig.url) as sweeper:
        removal = Retention(sweeper, actor="s", store=store, jobs_days=30, clock=lambda: 0.0)

        def depend() -> object:
            with pytest.raises(JobUnknown):
                rig.submit(after_any=[last])
            return None

        def commit() -> object:
            rig.wait_until_blocked()
            sweeper._pinned.commit()
            return None

        assert removal.remove_jobs() == 1
        at_once(depend, commit)
    assert last not in there(rig)


def test_objects_outlast_a_failure_and_go_in_a_later_round(
    rig: Rig, store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [ended(rig, store), ended(rig, store)]
    rig.clock.advance(31 * DAY)
    real = store.delete

    def broken(key: str) -> None:
        if key.startswith(f"jobs/{jobs[0]}/") and key.endswith("checkpoint"):
            raise StoreUnreachable("the store does not answer")
        real(key)

    with monkeypatch.context() as patch:
        patch.setattr(store, "delete", broken)
        rig.database.lose("remove_jobs")
        with pytest.raises(StoreUnreachable):
            retention(rig, store).run()
    # The answer was lost, the objects stayed; the rows are gone all the same, and once.
    assert (there(rig), rig.count("tombstone")) == (set(), len(jobs))
    assert [
        r["detail"]["jobs"] for r in rig.rows("SELECT detail FROM event WHERE detail ? 'jobs'")
    ] == [2]
    monkeypatch.setattr(module, "OBJECTS", 1)
    rig.database.lose("delete_tombstones")
    # The other job's may have been deleted meanwhile.
    left = len(list(store.list("jobs/")))
    assert left in {3, 7}
    assert retention(rig, store).run() == Removed(objects=left)
    assert (list(store.list("jobs/")), rig.count("tombstone")) == ([], 0)


def test_a_job_whose_objects_cannot_be_deleted_keeps_no_others(
    rig: Rig, store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, other = ended(rig, store), ended(rig, store)
    rig.clock.advance(31 * DAY)
    sweeper = Sweeper(rig.tick, period_s=10, retention=retention(rig, store))
    real = store.delete

    def locked(key: str) -> None:
        if key.startswith(f"jobs/{stuck}/"):
            raise StoreError("the object is locked")
        real(key)

    with monkeypatch.context() as patch:
        patch.setattr(store, "delete", locked)
        sweeper.retain()
        assert [row["job_id"] for row in rig.rows("SELECT job_id FROM tombstone")] == [stuck]
        assert list(store.list(f"jobs/{other}/")) == []
        # A round that fails is logged, and the sweeper goes on.
        patch.setattr(store, "list", lambda _: real(""))
        sweeper.retain()
    sweeper.retain()
    assert (list(store.list("jobs/")), rig.count("tombstone")) == ([], 0)


def test_two_at_once_remove_each_job_once_and_a_backlog_goes_in_batches(
    rig: Rig, store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "JOBS", 3)
    jobs = rig.submit_many(20)
    kept = rig.submit_many(4, queue="other")
    for job in jobs:
        rig.queue.cancel(job)
    rig.clock.advance(31 * DAY)
    both = [retention(rig, store), retention(rig, store)]
    removed = at_once(*[one.remove_jobs for one in both])
    assert sum(removed) + both[0].remove_jobs() == len(jobs)
    assert there(rig) == set(kept)
    ending = retention(rig, store)
    ending.end()
    assert ending.remove_jobs() == 0


def test_a_month_is_dropped_when_its_jobs_have_left(rig: Rig, store: FileStore) -> None:
    rig.clock.set(datetime(2031, 1, 30, tzinfo=UTC))
    rig.tick.run()
    slow = rig.submit(queue="slow")
    grant = rig.worker().claim_one()
    record(rig, store, grant)
    rig.finish(grant, Reason.PREEMPTED)
    gone = ended(rig, store, priority=5)
    rig.clock.set(datetime(2031, 3, 31, tzinfo=UTC))
    rig.tick.run()
    # February is empty.
    expected = Removed(jobs=1, objects=4, partitions=3, lanes=1)
    assert retention(rig, store).run() == expected
    assert gone not in there(rig)
    # The other one's first attempt lies in that month, and it is unfinished. A success is a row of
    # its own, which left with the job.
    assert [rig.count(table) for table in ("attempt", "metric", "sample")] == [1, 2, 2]
    rig.queue.cancel(slow)
    rig.clock.set(datetime(2031, 4, 30, tzinfo=UTC))
    # January, also of the audit trail, and the latter's three months of the migration.
    assert retention(rig, store, audit_months=2).run() == Removed(
        jobs=1, objects=4, partitions=7, lanes=2
    )
    assert [rig.count(table) for table in ("attempt", "metric", "sample")] == [0, 0, 0]
    assert {row["at"].month for row in rig.rows("SELECT at FROM event")} == {3, 4}


def test_the_cap_of_a_sweep_leaves_with_the_last_of_its_jobs(rig: Rig, store: FileStore) -> None:
    for name in ("a", "b"):
        ended(rig, store, sweep=name, parallel=1)
        Benchmarks(rig.database, owner="ann", actor="user:ann").set_parallel(name, 2)
    rig.clock.advance(20 * DAY)
    ended(rig, store, sweep="b", parallel=1)
    rig.clock.advance(20 * DAY)
    retention(rig, store).run()
    assert rig.rows("SELECT line FROM sweep_cap") == [{"line": "ann/b"}]
    rig.clock.advance(20 * DAY)
    retention(rig, store).run()
    assert rig.count("sweep_cap") == 0


def test_unused_lanes_and_shapes_are_removed(rig: Rig, store: FileStore) -> None:
    ended(rig, store, queue="gone", resources={"cpus": 3})
    used = rig.submit(queue="used")
    with rig.uncommitted() as other:
        other.submit([spec(queue="soon", resources={"cpus": 5})])
        rig.clock.advance(31 * DAY)
        assert retention(rig, store).run() == Removed(jobs=1, objects=4, lanes=2)
    lanes = {row["queue"] for row in rig.rows("SELECT queue FROM lane")}
    assert lanes == {"used", "soon"}
    assert rig.count("shape") == 2
    # This queue still knows the lane that went.
    again = rig.submit(queue="gone", resources={"cpus": 3})
    assert {rig.state(used), rig.state(again)} == {State.READY}


def test_without_a_setting_nothing_leaves(rig: Rig, store: FileStore) -> None:
    ended(rig, store)
    rig.clock.advance(9999 * DAY)
    queue = Queue(rig.database, actor="sweeper")
    assert Retention(rig.database, actor=queue.actor).run() == Removed()
    assert rig.count("job") == 1
