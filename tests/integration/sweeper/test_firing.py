"""Schedules fire: each time once, whatever dies or runs beside, and none holds up another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.job import Firing
from forge_schema.model.states import Role
from forge_schema.queue.queue import Queue
from forge_schema.schedules import Schedules, StillRunning
from forge_schema.schedules.times import CronInvalid
from forge_schema.service.caller import Caller
from forge_schema.service.service import Service
from forge_schema.storage import open_store
from forge_schema.sweeper.tick import Tick
from structlog.testing import capture_logs
from support.at_once import at_once
from support.queue.rig import CENTURY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from forge_schema.model.job import Schedule
    from support.queue.rig import Rig
    from support.waiting import Eventually

SPEC = {"name": "job", "command": ["make", "eval"]}
DAILY = "0 3 * * *"
# The rig's clock begins at midnight.
DUE = datetime(2031, 1, 1, 3, tzinfo=UTC)
DAY_S = 86_400
WAITING = "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def ann(rig: Rig, tmp_path: Path) -> Service:
    store = open_store((tmp_path / "store").as_uri())
    return Service(Caller("ann", Role.SUBMITTER, "user:ann"), lambda: rig.database, lambda: store)


def keep(ann: Service, name: str = "nightly", cron: str = DAILY, **said: Any) -> Schedule:  # noqa: ANN401  options of all types
    return ann.keep_schedule(name, cron, {**SPEC, **said.pop("spec", {})}, **said)


def jobs(rig: Rig) -> list[int]:
    return [row["id"] for row in rig.rows("SELECT id FROM job ORDER BY id")]


def end(rig: Rig) -> None:
    """Run the one waiting job to its end."""
    rig.finish(rig.worker().claim_one())


def sweeper(rig: Rig) -> Tick:
    return Tick(Queue(rig.database, actor="sweeper"), every=CENTURY)


def test_a_schedule_fires_when_it_is_due_and_once(rig: Rig, ann: Service) -> None:
    kept = keep(ann)
    assert kept.next_times == [DUE + timedelta(days=n) for n in range(3)]
    rig.clock.set(DUE - timedelta(microseconds=1))
    assert rig.tick.run().fired == 0
    rig.clock.set(DUE)
    assert ann.schedule("nightly").next_times[0] == DUE
    assert [rig.tick.run().fired for _ in range(3)] == [1, 0, 0]
    (job_id,) = jobs(rig)
    job = ann.job(job_id)
    assert (job.owner, job.name, job.spec["command"]) == ("ann", "job", ["make", "eval"])
    assert job.firing == Firing(schedule="nightly", due_at=DUE)
    assert ann.explain(job_id).firing == job.firing
    assert [event.actor for event in ann.events(job_id)] == ["schedule:nightly"]
    now = ann.schedule("nightly")
    assert (now.last_job_id, now.last_state, now.last_due_at) == (job_id, "queued", DUE)
    assert (now.next_times[0], now.error) == (DUE + timedelta(days=1), None)


def test_a_job_of_a_schedule_waits_for_approval_like_any_other(rig: Rig, ann: Service) -> None:
    rig.admin.limit_owner("ann", OwnerSettings(approve_gpu_hours=1))
    keep(ann, spec={"resources": {"gpus": 1}, "timeout_s": 3600})
    keep(ann, "long", spec={"resources": {"gpus": 1}, "timeout_s": 3601})
    rig.clock.set(DUE)
    assert rig.tick.run().fired == 2
    found = {ann.job(job).timeout_s: ann.job(job).waits_for for job in jobs(rig)}
    assert found == {3600: None, 3601: ["approval"]}


def test_a_job_that_no_schedule_submitted_names_none(rig: Rig, ann: Service) -> None:
    odd = ["schedule:1:2031-13-01T03:00:00Z:x", "schedule:1:2031-01-01T03:00:00Z:", "schedule:1"]
    for key in (None, *odd):
        job_id = rig.submit(idempotency_key=key)
        assert ann.job(job_id).firing is None
        assert ann.explain(job_id).firing is None


def test_times_that_passed_while_no_sweeper_ran_are_one(rig: Rig, ann: Service) -> None:
    keep(ann)
    rig.clock.set(DUE + timedelta(days=10, hours=1))
    assert [rig.tick.run().fired for _ in range(2)] == [1, 0]
    assert len(jobs(rig)) == 1
    assert ann.schedule("nightly").next_times[0] == DUE + timedelta(days=11)


def test_two_sweepers_at_once_submit_one_job_for_each_schedule(rig: Rig, ann: Service) -> None:
    for n in range(5):
        keep(ann, f"s{n}")
    rig.clock.set(DUE)
    at_once(*(partial(sweeper(rig).fire) for _ in range(4)))
    assert len(jobs(rig)) == 5
    assert all(schedule.last_job_id for schedule in ann.schedules())


@pytest.mark.parametrize("name", ["due_schedules", "submit", "move_schedule"])
def test_a_lost_answer_submits_no_second_job(rig: Rig, ann: Service, name: str) -> None:
    keep(ann)
    rig.clock.set(DUE)
    rig.database.lose(name)
    rig.tick.run()
    (job_id,) = jobs(rig)
    now = ann.schedule("nightly")
    assert (now.last_job_id, now.last_due_at, now.error) == (job_id, DUE, None)
    assert rig.tick.run().fired == 0


class Died(BaseException):
    """The sweeper's process is gone."""


def die() -> None:
    raise Died


@pytest.mark.parametrize("name", ["due_schedules", "submit", "move_schedule"])
def test_wherever_a_sweeper_dies_the_next_one_submits_no_second_job(
    rig: Rig, ann: Service, name: str
) -> None:
    keep(ann)
    rig.clock.set(DUE)
    rig.database.meanwhile[name] = die
    with pytest.raises(Died):
        rig.tick.fire()
    sweeper(rig).fire()
    (job_id,) = jobs(rig)
    assert ann.schedule("nightly").last_job_id == job_id
    assert sweeper(rig).fire() == 0


def test_a_schedule_replaced_after_its_submit_submits_no_second_job(rig: Rig, ann: Service) -> None:
    keep(ann)
    rig.clock.set(DUE)
    rig.database.meanwhile["submit"] = die
    with pytest.raises(Died):
        rig.tick.fire()
    keep(ann, spec={"command": ["make", "other"]})
    assert rig.tick.run().fired == 1
    (job_id,) = jobs(rig)
    now = ann.schedule("nightly")
    assert (now.last_job_id, now.error) == (job_id, None)


def test_a_schedule_removed_while_it_fires_harms_nothing(rig: Rig, ann: Service) -> None:
    keep(ann)
    rig.clock.set(DUE)
    rig.database.meanwhile["submit"] = lambda: ann.remove_schedule("nightly")
    assert rig.tick.run().fired == 1
    assert (len(jobs(rig)), ann.schedules()) == (1, [])


def test_a_schedule_stored_again_while_it_is_due_still_fires(rig: Rig, ann: Service) -> None:
    keep(ann)
    rig.clock.set(DUE)
    keep(ann)
    assert rig.tick.run().fired == 1
    rig.clock.set(DUE + timedelta(days=1))
    keep(ann, cron="0 4 * * *")
    assert rig.tick.run().fired == 0


def test_a_paused_schedule_does_not_fire_and_a_resumed_one_not_for_the_past(
    rig: Rig, ann: Service
) -> None:
    keep(ann)
    for _ in range(2):
        ann.pause_schedule("nightly")
    assert ann.schedule("nightly").paused
    rig.clock.set(DUE + timedelta(days=3))
    assert rig.tick.run().fired == 0
    ann.pause_schedule("nightly", paused=False)
    assert rig.tick.run().fired == 0
    rig.clock.set(DUE + timedelta(days=4))
    # Resuming what is not paused must not skip a time that is due.
    ann.pause_schedule("nightly", paused=False)
    assert rig.tick.run().fired == 1
    actions = [row["action"] for row in rig.rows("SELECT action FROM event ORDER BY id")]
    assert actions[:3] == ["schedule_kept", "schedule_paused", "schedule_resumed"]


def test_a_schedule_stored_again_is_no_longer_paused(rig: Rig, ann: Service) -> None:
    keep(ann)
    ann.pause_schedule("nightly")
    rig.clock.set(DUE)
    assert not keep(ann).paused
    assert rig.tick.run().fired == 0
    assert ann.schedule("nightly").next_times[0] == DUE + timedelta(days=1)


def test_a_removed_schedule_fires_no_more_and_its_jobs_stay(rig: Rig, ann: Service) -> None:
    keep(ann)
    rig.clock.set(DUE)
    rig.tick.run()
    ann.remove_schedule("nightly")
    rig.clock.advance(DAY_S)
    assert rig.tick.run().fired == 0
    (job_id,) = jobs(rig)
    assert ann.job(job_id).firing == Firing(schedule="nightly", due_at=DUE)
    # A new schedule of the same name at the same time is another one.
    rig.clock.set(DUE - timedelta(hours=1))
    keep(ann)
    rig.clock.set(DUE)
    rig.tick.run()
    assert len(jobs(rig)) == 2


def test_without_overlap_it_waits_for_the_end_of_the_last_job(rig: Rig, ann: Service) -> None:
    keep(ann, overlap=False)
    rig.clock.set(DUE)
    rig.tick.run()
    (first,) = jobs(rig)
    rig.clock.advance(DAY_S)
    assert rig.tick.run().fired == 1
    assert jobs(rig) == [first]
    skipped = ann.schedule("nightly")
    assert skipped.error == f"skipped: job {first} had not ended (--no-overlap)"
    assert (skipped.last_job_id, skipped.last_due_at) == (first, DUE + timedelta(days=1))
    end(rig)
    rig.clock.advance(DAY_S)
    assert rig.tick.run().fired == 1
    assert len(jobs(rig)) == 2
    assert ann.schedule("nightly").error is None


def test_without_overlap_runs_by_hand_and_the_sweeper_at_once_submit_one_job(
    rig: Rig, ann: Service, eventually: Eventually
) -> None:
    keep(ann, overlap=False)
    rig.clock.set(DUE)
    by_hand = [partial(by_hand_at, ann, DUE.replace(second=n)) for n in (10, 20)]
    with psycopg.connect(rig.url) as other, ThreadPoolExecutor(3) as threads:
        # All three read the schedule before any may go on.
        other.execute("SELECT FROM schedule FOR UPDATE")
        calls: list[Callable[[], int | None]] = [sweeper(rig).fire, *by_hand]
        runs = [threads.submit(call) for call in calls]
        eventually(lambda: len(rig.rows(f"SELECT FROM {WAITING}")) == len(runs))
        other.rollback()
        answers = [run.result(timeout=120) for run in runs]
    (job_id,) = jobs(rig)
    assert answers[0] == 1
    assert set(answers[1:]) <= {job_id, None}
    assert ann.schedule("nightly").last_job_id == job_id


def test_without_overlap_a_sweeper_that_comes_second_tells_of_no_fault(
    rig: Rig, ann: Service, eventually: Eventually
) -> None:
    keep(ann, overlap=False)
    rig.clock.set(DUE)
    with (
        psycopg.connect(rig.url) as other,
        capture_logs() as logs,
        ThreadPoolExecutor(2) as threads,
    ):
        other.execute("SELECT FROM schedule FOR UPDATE")
        runs = [threads.submit(sweeper(rig).fire) for _ in range(2)]
        eventually(lambda: len(rig.rows(f"SELECT FROM {WAITING}")) == len(runs))
        other.rollback()
        assert [run.result(timeout=120) for run in runs] == [1, 1]
    assert (len(jobs(rig)), ann.schedule("nightly").error) == (1, None)
    assert "schedule_not_fired" not in {log["event"] for log in logs}


def by_hand_at(ann: Service, at: datetime) -> int | None:
    try:
        return ann.run_schedule("nightly", at=at)
    except StillRunning:
        return None


def test_without_overlap_a_job_is_submitted_and_noted_or_neither(rig: Rig, ann: Service) -> None:
    keep(ann, overlap=False)
    rig.rows("ALTER TABLE schedule ADD CHECK (last_job_id IS NULL)")
    with pytest.raises(psycopg.errors.CheckViolation):
        by_hand_at(ann, DUE)
    assert jobs(rig) == []


def test_without_overlap_a_time_is_kept_if_the_database_leaves(
    rig: Rig, ann: Service, eventually: Eventually
) -> None:
    keep(ann, overlap=False)
    rig.clock.set(DUE)
    with psycopg.connect(rig.url) as other, ThreadPoolExecutor(1) as thread:
        other.execute("LOCK TABLE job")
        firing = thread.submit(sweeper(rig).fire)
        eventually(lambda: rig.rows(f"SELECT pg_terminate_backend(pid) FROM {WAITING}"))
        with pytest.raises(DatabaseUnreachable):
            firing.result(timeout=120)
        other.rollback()
    assert ann.schedule("nightly").error is None
    assert sweeper(rig).fire() == 1
    assert [ann.schedule("nightly").last_job_id] == jobs(rig)


def test_with_overlap_it_does_not(rig: Rig, ann: Service) -> None:
    keep(ann)
    for _ in range(2):
        rig.clock.advance(DAY_S)
        rig.tick.run()
    assert len(jobs(rig)) == 2


BROKEN = {
    "a job that is no longer valid": (
        """spec || '{"priority": 5000}'""",
        "priority: Input should be less than or equal to 1000",
    ),
    "a job without its command": ("spec - 'command'", "command: Field required"),
    "code that is gone": (
        "jsonb_set(spec, '{bundle_digest}', to_jsonb(repeat('ab', 32)))",
        "ann has not uploaded the bundle",
    ),
    "a checkpoint that is gone": (
        """spec || '{"from_checkpoint": {"job_id": 99}}'""",
        "there is no job 99",
    ),
}


@pytest.mark.parametrize(("damage", "why"), BROKEN.values(), ids=BROKEN)
def test_a_job_that_cannot_be_submitted_holds_up_no_other(
    rig: Rig, ann: Service, damage: str, why: str
) -> None:
    keep(ann, "bad", "0 2 * * *")
    keep(ann, "good")
    rig.rows(f"UPDATE schedule SET spec = {damage} WHERE name = 'bad'")
    rig.clock.set(DUE)
    assert rig.tick.run().fired == 2
    assert len(jobs(rig)) == 1
    bad, good = ann.schedules()
    assert (bad.error or "").startswith(why)
    assert (good.error, bad.last_job_id) == (None, None)
    assert not bad.paused
    assert bad.next_times[0] == DUE + timedelta(hours=23)
    assert rig.tick.run().fired == 0


@pytest.mark.parametrize(
    ("column", "value"), [("timezone", "Mars/Olympus"), ("cron", "0 0 30 2 *"), ("cron", "gone")]
)
def test_a_schedule_without_a_next_time_is_paused_and_says_why(
    rig: Rig, ann: Service, column: str, value: str
) -> None:
    keep(ann)
    rig.rows(f"UPDATE schedule SET {column} = %s", value)
    rig.clock.set(DUE)
    assert [rig.tick.run().fired for _ in range(2)] == [1, 0]
    kept = ann.schedule("nightly")
    assert (kept.paused, kept.next_times) == (True, [])
    assert (kept.error or "").startswith("paused: ")
    keep(ann)
    assert ann.schedule("nightly").error is None


def test_a_schedule_that_cannot_be_resumed_says_why(rig: Rig, ann: Service) -> None:
    keep(ann)
    ann.pause_schedule("nightly")
    rig.rows("UPDATE schedule SET cron = '0 0 30 2 *'")
    with pytest.raises(CronInvalid, match="never falls due"):
        ann.pause_schedule("nightly", paused=False)


def test_an_idle_tick_looks_once(rig: Rig, ann: Service) -> None:
    keep(ann)
    rig.database.names()
    rig.tick.fire()
    assert rig.database.names() == ["due_schedules"]


def test_schedules_of_one_name_are_their_owners(rig: Rig) -> None:
    ann, bob = (Schedules(rig.database, owner=o, actor=f"user:{o}") for o in ("ann", "bob"))
    for who in (ann, bob):
        who.keep("nightly", DAILY, SPEC, timezone="UTC", overlap=True)
    rig.clock.set(DUE)
    rig.tick.run()
    owners = [row["owner"] for row in rig.rows("SELECT owner FROM job ORDER BY owner")]
    assert owners == ["ann", "bob"]
