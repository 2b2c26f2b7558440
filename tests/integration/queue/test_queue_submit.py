"""Submitting: one statement, one job per idempotency key, nothing half done."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.job import IdempotencyConflict
from forge_schema.model.states import State
from forge_schema.queue.queue import Queue
from forge_schema.wake import Hint
from support.at_once import at_once
from support.queue.rig import spec

if TYPE_CHECKING:
    from support.queue.rig import Rig

TABLES = ("job", "ready", "scheduled", "event")


def test_ten_thousand_jobs_are_submitted_by_one_statement_in_order(rig: Rig) -> None:
    specs = [spec(name=f"job {n}", priority=n % 7) for n in range(10_000)]
    ids = rig.queue.submit(specs)
    assert rig.database.names() == ["ensure_lane", "submit"]
    stored = rig.rows("SELECT id, name, nice FROM job ORDER BY id")
    assert [(row["id"], row["name"], -row["nice"]) for row in stored] == [
        (job_id, s.name, s.priority) for job_id, s in zip(ids, specs, strict=True)
    ]
    assert [rig.count(table) for table in TABLES] == [10_000, 10_000, 0, 0]


def test_jobs_of_many_lanes_are_submitted_together(rig: Rig) -> None:
    specs = [spec(owner=owner, gpus=gpus) for owner in ("ann", "bob") for gpus in (0, 1, 2)]
    ids = rig.queue.submit(specs)
    assert rig.count("lane") == 6
    assert [rig.jobs.job(job_id)["owner"] for job_id in ids] == ["ann"] * 3 + ["bob"] * 3
    assert rig.database.names().count("submit") == 1


def test_each_job_of_a_mixed_batch_is_stored_as_it_was_asked_for(rig: Rig) -> None:
    plain, kept = spec(), spec(name="kept", max_failures=3, idempotency_key="k")
    sweep = [spec(name=f"s{n}", sweep="s", parameters={"lr": n}, env={"N": "ä"}) for n in range(3)]
    tuned = spec(tuning={"precision": "bf16"}, arguments={"a": [1]}, timeout_s=5, priority=-2)
    specs = [plain, plain, *sweep, kept, plain, tuned, *sweep, kept, spec(max_failures=3), plain]
    ids = rig.queue.submit(specs)
    assert ids[5] == ids[11]
    stored = {row["id"]: row for row in rig.rows("SELECT * FROM job")}
    assert len(stored) == len(specs) - 1
    for job_id, asked in zip(ids, specs, strict=True):
        row = stored[job_id]
        assert (row["name"], row["spec"]) == (asked.name, asked.payload())
        assert (row["sweep"], row["timeout_s"], -row["nice"], row["content_digest"]) == (
            *(asked.sweep, asked.timeout_s, asked.priority),
            asked.content_digest() if asked.idempotency_key else "",
        )


def test_the_jobs_of_a_sweep_are_each_stored_as_they_were_asked_for(rig: Rig) -> None:
    base = {"sweep": "s", "image": "i", "timeout_s": 9, "priority": 3, "experiment": "e"}
    own: list[dict[str, Any]] = [
        {"name": "a", "parameters": {"lr": 0.1, "e": True}},
        {"name": "b", "env": {"N": 'ä"'}, "command": ["sh", "\x1f", "\n"], "idempotency_key": "b"},
        {"name": "c", "arguments": {"z": [1, None], "a": {}}, "idempotency_key": "k"},
    ]
    specs = [spec(**base, **fields) for fields in own]
    ids = rig.queue.submit(specs)
    assert rig.database.names() == ["ensure_lane", "submit"]
    for row, asked in zip(rig.rows("SELECT * FROM job ORDER BY id"), specs, strict=True):
        assert (row["name"], row["spec"], row["nice"]) == (asked.name, asked.payload(), -3)
        assert (row["sweep"], row["timeout_s"], row["experiment"]) == ("s", 9, "e")
        assert row["content_digest"] == (asked.content_digest() if asked.idempotency_key else "")
    assert [rig.places(job_id) for job_id in ids] == [["ready"]] * 3
    # Those whose keys are in use are the same jobs; the other one is new.
    again = rig.queue.submit(specs)
    assert (again[1:], rig.count("job")) == (ids[1:], 4)
    # What the jobs of one statement have of their own is separated by this.
    split = [spec(**base, name="a\x1fb"), spec(**base, name="c", idempotency_key="x\x1fy")]
    assert [rig.jobs.job(job_id)["name"] for job_id in rig.queue.submit(split)] == ["a\x1fb", "c"]


def test_nothing_is_submitted_by_an_empty_list(rig: Rig) -> None:
    assert rig.queue.submit([]) == []


def test_a_delayed_job_is_scheduled_and_becomes_ready_when_due(rig: Rig) -> None:
    job_id = rig.submit(delay_s=60)
    worker = rig.worker()
    rig.clock.advance(59.9)
    assert rig.tick.run().promoted == 0
    assert (rig.state(job_id), worker.claim()) == (State.SCHEDULED, [])
    rig.clock.advance(0.1)
    assert rig.tick.run().promoted == 1
    assert (rig.state(job_id), rig.places(job_id)) == (State.READY, ["ready"])
    assert worker.claim_one().fence.job_id == job_id


def test_the_same_key_and_content_is_the_same_job(rig: Rig) -> None:
    first = rig.submit(idempotency_key="k", env={"A": "1", "B": "2"}, labels={"x": "1", "y": "2"})
    again = rig.submit(idempotency_key="k", env={"B": "2", "A": "1"}, labels={"y": "2", "x": "1"})
    assert first == again
    assert [rig.count(table) for table in TABLES] == [1, 1, 0, 0]


def test_a_key_still_names_its_job_when_that_is_finished(rig: Rig) -> None:
    first = rig.submit(idempotency_key="k")
    rig.finish(rig.worker().claim_one())
    assert rig.submit(idempotency_key="k") == first
    assert rig.places(first) == ["outcome"]


def test_a_key_belongs_to_its_owner(rig: Rig) -> None:
    first = rig.submit(idempotency_key="k", owner="ann")
    assert rig.submit(idempotency_key="k", owner="bob", name="another") != first


def test_a_key_with_other_content_is_refused_and_nothing_of_the_batch_is_stored(rig: Rig) -> None:
    first = rig.submit(idempotency_key="k")
    batch = [spec(), spec(idempotency_key="k", command=["false"]), spec(idempotency_key="new")]
    with pytest.raises(IdempotencyConflict, match="'k'") as refused:
        rig.queue.submit(batch)
    assert (refused.value.code, bool(refused.value.hint)) == ("idempotency_conflict", True)
    assert [rig.count(table) for table in TABLES] == [1, 1, 0, 0]
    assert rig.jobs.job(first)["spec"]["command"] == ["true"]


def test_a_key_twice_in_a_batch_is_one_job_or_a_conflict(rig: Rig) -> None:
    keyed = spec(idempotency_key="k")
    first, second = rig.queue.submit([keyed, keyed])
    assert first == second
    other = spec(idempotency_key="k2")
    with pytest.raises(IdempotencyConflict, match="'k2'"):
        rig.queue.submit([other, other.model_copy(update={"name": "another"})])
    assert rig.count("job") == 1


def test_one_key_submitted_by_eight_at_once_is_one_job(rig: Rig) -> None:
    keyed = [spec(idempotency_key=f"k{n}") for n in range(20)]
    queues = [Queue(rig.database, actor=f"user:{n}") for n in range(8)]
    answers = at_once(*[partial(queue.submit, keyed) for queue in queues])
    assert all(ids == answers[0] for ids in answers)
    assert (rig.count("job"), rig.count("ready")) == (20, 20)


def test_of_eight_contents_for_one_key_at_once_one_is_submitted(rig: Rig) -> None:
    def submit(n: int) -> int | None:
        try:
            return rig.submit(idempotency_key="k", name=f"job {n}")
        except IdempotencyConflict:
            return None

    answers = at_once(*[partial(submit, n) for n in range(8)])
    accepted = [job_id for job_id in answers if job_id is not None]
    assert (len(accepted), rig.count("job"), rig.count("ready")) == (1, 1, 1)
    assert rig.jobs.job(accepted[0])["name"] == f"job {answers.index(accepted[0])}"


def test_a_submit_waits_for_one_of_the_same_key_that_is_under_way(rig: Rig) -> None:
    rig.submit()  # the lane is there
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            (first,) = queue.submit([spec(idempotency_key="k")])
            second = pool.submit(rig.submit, idempotency_key="k")
            rig.wait_until_blocked()
        assert second.result(timeout=120) == first


def test_a_submit_that_waited_for_another_of_its_key_is_refused_for_other_content(rig: Rig) -> None:
    rig.submit()  # the lane is there
    with ThreadPoolExecutor(1) as pool:
        with rig.uncommitted() as queue:
            queue.submit([spec(idempotency_key="k")])
            second = pool.submit(rig.submit, idempotency_key="k", name="another")
            rig.wait_until_blocked()
        with pytest.raises(IdempotencyConflict):
            second.result(timeout=120)
    assert (rig.count("job"), rig.count("ready")) == (2, 2)


def test_batches_with_the_same_keys_in_opposite_order_both_succeed(rig: Rig) -> None:
    for turn in range(3):
        keyed = [spec(idempotency_key=f"{turn}.{n}") for n in range(300)]
        forth, back = at_once(
            partial(rig.queue.submit, keyed), partial(rig.queue.submit, keyed[::-1])
        )
        assert forth == back[::-1]
    assert rig.count("job") == 900


def test_workers_are_told_of_new_jobs(rig: Rig) -> None:
    with rig.listening() as heard:
        rig.submit()
        assert [Hint.read(hint).kind for hint in heard()] == ["ready"]
