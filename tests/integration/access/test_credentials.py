"""API keys, workers created by admins, templates and the audit trail, on a movable clock."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest
from forge_schema.access import tokens
from forge_schema.access.api_keys import Keys, NoSuchKey
from forge_schema.access.tokens import TokenKind
from forge_schema.access.worker_tokens import NameTaken, NotOffline, WorkerTokens
from forge_schema.model.states import Command, Role, WorkerKind, WorkerStatus
from forge_schema.model.worker import Machine, NoSuchWorker
from forge_schema.queue.templates import NoSuchTemplate, Templates
from forge_schema.read.audit import Audit
from support.queue.rig import Rig

HOUR = timedelta(hours=1)


@pytest.fixture
def keys(rig: Rig) -> Keys:
    return Keys(rig.database, actor="user:root")


@pytest.fixture
def workers(rig: Rig) -> WorkerTokens:
    return WorkerTokens(rig.database, actor="user:root")


def key(text: str) -> tokens.ParsedToken:
    return tokens.parse(text, TokenKind.KEY)


def worker_token(text: str) -> tokens.ParsedToken:
    return tokens.parse(text, TokenKind.WORKER)


def actions(rig: Rig) -> list[tuple[str, str]]:
    return [(row["actor"], row["action"]) for row in Audit(rig.database).events()]


def boot(rig: Rig, worker_id: int, **changes: object) -> Machine:
    machine = Machine(**{"boot_id": uuid4(), "cpus": 2.0, "memory_mb": 1024,
                         "disk_mb": 1024, **changes})  # type: ignore[arg-type]  # fields of all types  # fmt: skip
    rig.registry.register_known(worker_id, machine)
    return machine


def test_a_key_is_known_by_its_text_alone(rig: Rig, keys: Keys) -> None:
    key_id, text = keys.create("ann", Role.SUBMITTER, name="laptop")
    found = keys.check(key(text))
    row: dict[str, object] = {"id": key_id, "owner": "ann", "role": "submitter"}
    assert found == {**row, "public_key": None, "team": None, "others": []}
    assert keys.check(key(tokens.mint(TokenKind.KEY, key_id)[0])) is None
    assert keys.check(key(tokens.mint(TokenKind.KEY, "other")[0])) is None
    (listed,) = keys.listed()
    assert (listed["name"], listed["signed"], listed["last_used_at"]) == (
        "laptop", False, rig.clock.now,
    )  # fmt: skip
    assert text not in str(rig.rows("SELECT * FROM api_key"))


def test_a_rotated_key_is_invalid_at_once(keys: Keys) -> None:
    key_id, old = keys.create("ann", Role.ADMIN)
    new = keys.rotate(key_id)
    assert keys.check(key(old)) is None
    assert keys.check(key(new))


def test_a_revoked_key_stays_revoked(rig: Rig, keys: Keys) -> None:
    key_id, text = keys.create("ann", Role.ADMIN)
    keys.revoke(key_id)
    keys.revoke(key_id)
    assert keys.check(key(text)) is None
    assert keys.valid(key_id) is None
    with pytest.raises(NoSuchKey):
        keys.rotate(key_id)
    with pytest.raises(NoSuchKey):
        keys.revoke("nobody")
    assert [action for _, action in actions(rig)] == ["key_created", "key_revoked"]


def test_an_expired_key_is_no_key(rig: Rig, keys: Keys) -> None:
    key_id, text = keys.create("ann", Role.VIEWER, lasts=HOUR)
    rig.clock.advance(3599)
    assert keys.check(key(text))
    assert keys.valid(key_id)
    rig.clock.advance(1)
    assert keys.check(key(text)) is None
    assert keys.valid(key_id) is None


def test_the_last_use_of_a_key_is_noted_by_the_minute(rig: Rig, keys: Keys) -> None:
    _, text = keys.create("ann", Role.VIEWER)
    first = rig.clock.now
    keys.check(key(text))
    rig.clock.advance(30)
    keys.check(key(text))
    assert keys.listed()[0]["last_used_at"] == first
    rig.clock.advance(31)
    keys.check(key(text))
    assert keys.listed()[0]["last_used_at"] == rig.clock.now


def test_a_worker_comes_with_the_token_that_an_admin_made(rig: Rig, workers: WorkerTokens) -> None:
    worker_id, text = workers.create("gpu-1", labels={"zone": "eu"})
    found = workers.check(worker_token(text))
    assert found is not None
    assert (found["id"], found["name"], found["kind"]) == (worker_id, "gpu-1", "persistent")
    assert rig.registry.workers()[0]["labels"] == {"zone": "eu"}
    boot(rig, worker_id, labels={"zone": "us", "disk": "ssd"})
    (row,) = rig.registry.workers()
    assert (row["name"], row["status"], row["cpus"]) == ("gpu-1", "connecting", 2.0)
    assert row["labels"] == {"forge.runs": "images,projects", "zone": "eu", "disk": "ssd"}
    assert actions(rig) == [("user:root", "worker_created"), (f"worker:{worker_id}", "registered")]


def test_an_admins_ephemeral_holds_whatever_the_worker_says(
    rig: Rig, workers: WorkerTokens
) -> None:
    spot, _ = workers.create("spot", kind=WorkerKind.EPHEMERAL)
    stays, _ = workers.create("stays")
    for worker_id, kind in ((spot, WorkerKind.PERSISTENT), (stays, WorkerKind.EPHEMERAL)):
        boot(rig, worker_id, kind=kind)
    assert [row["kind"] for row in rig.registry.workers()] == ["ephemeral", "ephemeral"]


def test_a_name_is_taken_once(workers: WorkerTokens) -> None:
    workers.create("gpu-1")
    with pytest.raises(NameTaken, match="gpu-1"):
        workers.create("gpu-1")


def test_a_rotated_worker_token_is_invalid_at_once(rig: Rig, workers: WorkerTokens) -> None:
    worker_id, old = workers.create("gpu-1")
    new = workers.rotate(worker_id, lasts=HOUR)
    assert workers.check(worker_token(old)) is None
    assert workers.check(worker_token(new))
    rig.clock.advance(3600)
    assert workers.check(worker_token(new)) is None
    with pytest.raises(NoSuchWorker):
        workers.rotate(worker_id + 1)


def test_a_worker_without_a_token_cannot_log_in_over_http(rig: Rig, workers: WorkerTokens) -> None:
    worker = rig.worker()
    for name in (str(worker.id), "9" * 30, "abc"):
        assert workers.check(worker_token(tokens.mint(TokenKind.WORKER, name)[0])) is None


def test_only_a_worker_that_is_offline_is_deleted(rig: Rig, workers: WorkerTokens) -> None:
    worker_id, text = workers.create("gpu-1")
    machine = boot(rig, worker_id)
    rig.queue.renew(worker_id, machine.boot_id, [], WorkerStatus.IDLE)
    rig.clock.advance(82)
    with pytest.raises(NotOffline, match="worker gpu-1 is idle, was heard from 1 min 22 s ago"):
        workers.delete(worker_id)
    (shown,) = rig.registry.workers()
    assert (shown["status"], shown["silent"]) == ("idle", True)
    rig.registry.disconnect(worker_id, machine.boot_id)
    workers.delete(worker_id)
    assert workers.check(worker_token(text)) is None
    with pytest.raises(NoSuchWorker):
        workers.delete(worker_id)
    with pytest.raises(NoSuchWorker):
        boot(rig, worker_id)


def test_a_worker_that_holds_a_lease_is_not_deleted(rig: Rig, workers: WorkerTokens) -> None:
    worker = rig.worker()
    rig.submit()
    worker.claim_one()
    rig.registry.disconnect(worker.id, worker.machine.boot_id)
    with pytest.raises(NotOffline):
        workers.delete(worker.id)


def test_a_worker_is_waited_for_until_its_token_expires(rig: Rig, workers: WorkerTokens) -> None:
    worker_id, _ = workers.create("never")
    workers.delete(worker_id)
    workers.create("for good")
    workers.create("for a day", lasts=timedelta(days=1))
    for seconds, left in ((86_399, {"for a day", "for good"}), (1, {"for good"})):
        rig.clock.advance(seconds)
        rig.tick.run()
        rows = rig.registry.workers()
        assert {row["name"] for row in rows} == left
        assert {row["status"] for row in rows} == {"connecting"}


def test_a_draining_worker_stays_draining_whatever_it_reports(
    rig: Rig, workers: WorkerTokens
) -> None:
    worker_id, _ = workers.create("gpu-1")
    machine = boot(rig, worker_id)
    rig.registry.command(worker_id, Command.DRAIN)
    for said in (WorkerStatus.BUSY, WorkerStatus.IDLE, WorkerStatus.CONNECTING):
        rig.queue.renew(worker_id, machine.boot_id, [], said)
        assert rig.registry.workers()[0]["status"] == "draining"
    rig.registry.command(worker_id, None)
    rig.queue.renew(worker_id, machine.boot_id, [], WorkerStatus.IDLE)
    assert rig.registry.workers()[0]["status"] == "idle"


def test_templates_are_kept_by_owner_and_name(rig: Rig) -> None:
    ann, bob = (Templates(rig.database, owner=o, actor=f"user:{o}") for o in ("ann", "bob"))
    ann.keep("nightly", {"command": ["true"]})
    ann.keep("nightly", {"command": ["false"]})
    assert ann.get("nightly")["spec"] == {"command": ["false"]}
    assert [row["name"] for row in ann.listed()] == ["nightly"]
    assert bob.listed() == []
    for refused in (bob.get, bob.remove):
        with pytest.raises(NoSuchTemplate):
            refused("nightly")
    ann.remove("nightly")
    assert ann.listed() == []


def test_the_trail_tells_a_jobs_whole_story(rig: Rig) -> None:
    job = rig.submit()
    worker = rig.worker()
    rig.clock.advance(1)
    grant = worker.claim_one()
    story = [row["action"] for row in Audit(rig.database).events(job_id=job)]
    assert story == ["submitted", "dispatched"]
    rig.clock.advance(1)
    rig.finish(grant)
    trail = Audit(rig.database)
    assert [row["action"] for row in trail.events(job_id=job)] == [*story, "ended"]
    assert [row["action"] for row in trail.events(action="ended", worker_id=worker.id)] == ["ended"]
    dispatched = trail.events(action="dispatched")[0]["at"]
    assert [row["action"] for row in trail.events(after=dispatched)] == ["ended"]
    rig.clock.advance(86_401)
    assert trail.events() == []
    assert len(trail.events(since=timedelta(days=2), count=2)) == 2


def test_what_was_refused_is_noted_and_cannot_be_changed(rig: Rig) -> None:
    Audit(rig.database).note("somebody", "registration_refused", {"why": "expired"})
    assert actions(rig) == [("somebody", "registration_refused")]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rig.rows("UPDATE event SET actor = 'nobody'")


def test_demand_is_one_number_for_each_shape(rig: Rig) -> None:
    for _ in range(3):
        rig.submit(queue="a")
    rig.submit(queue="b")
    rig.submit(queue="a", cpus=2)
    rig.worker().claim_one()
    rows = rig.rows("SELECT cpus, waiting, running, demand FROM queue_demand ORDER BY cpus")
    assert [tuple(row.values()) for row in rows] == [(1, 3, 1, 4), (2, 1, 0, 1)]
    rig.admin.set_queue("a", {"paused": True})
    rows = rig.rows("SELECT waiting, running, demand FROM queue_demand ORDER BY cpus")
    assert [tuple(row.values()) for row in rows] == [(1, 1, 2), (0, 0, 0)]
