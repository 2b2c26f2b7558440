"""The contract of both backends for admins, directly and through a server."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from forge_client import Client, ClientError, NotFound
from forge_schema.access import tokens
from forge_schema.access.api_keys import Keys
from forge_schema.access.tokens import TokenKind
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.states import Reason
from forge_schema.model.worker import Speed, speed_text
from support.client.reaching import WAYS, reaching
from support.queue.holder import Holder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_client.backend import Backend
    from forge_schema.service.admin import Admin
    from support.queue.rig import Rig

SPEC = {"name": "x", "owner": "ann", "command": ["ls"]}
HOUR = timedelta(hours=1)


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture(params=WAYS)
def client(request: pytest.FixtureRequest, rig: Rig, store_url: str) -> Iterator[Client]:
    with reaching(request.param, rig, store_url) as client:
        yield client


@pytest.fixture
def backend(client: Client) -> Backend:
    return client.backend


@pytest.fixture
def admin(client: Client) -> Admin:
    return client.backend.admin


def refusal(code: str) -> pytest.RaisesExc[ClientError]:
    kind = type(ClientError("", code=code))
    return pytest.RaisesExc(kind, check=lambda error: type(error) is kind and error.code == code)


def valid_key(rig: Rig, text: str) -> bool:
    return (
        Keys(rig.database, actor="user:root").check(tokens.parse(text, TokenKind.KEY)) is not None
    )


def valid_token(rig: Rig, text: str) -> bool:
    said = tokens.parse(text, TokenKind.WORKER)
    return WorkerTokens(rig.database, actor="user:root").check(said) is not None


def test_people_are_invited_into_a_team(client: Client, rig: Rig) -> None:
    lines = client.invite(["bob", "cem"], team="vision", lasts="2d", server="http://lab.example")
    assert [line.split()[:4] for line in lines] == [
        ["forge", "login", "http://lab.example", "--invitation"]
    ] * 2
    invited = [key for key in client.backend.admin.api_keys() if key.invitation]
    assert {(key.owner, key.team, key.role) for key in invited} == {
        ("bob", "vision", "submitter"), ("cem", "vision", "submitter"),
    }  # fmt: skip
    assert {key.expires_at for key in invited} == {rig.clock.now + timedelta(days=2)}
    assert client.team("vision").owners == ["bob", "cem"]
    assert all(valid_key(rig, line.split()[4]) for line in lines)
    with pytest.raises(ClientError, match="role: 'boss' is not known"):
        client.invite("eve", role="boss", server="http://lab.example")


def test_an_unknown_name_is_compared_with_those_that_are_there(
    client: Client, backend: Backend
) -> None:
    backend.keep_schedule("nightly", "0 3 * * *", {"name": "x", "command": ["ls"]})
    backend.keep_template("base", {"command": ["ls"]})
    backend.keep_input("imagenet", "s3://sets/imagenet")
    client.add_notification("mail", email="ann@lab.example")
    client.change_team("vision", join=["ann"])
    client.create_worker("gpu-1")
    for call, near in (
        (lambda: client.run_schedule("nightl"), "nightly"),
        (lambda: backend.template("bse"), "base"),
        (lambda: client.remove_input("imagnet"), "imagenet"),
        (lambda: client.test_notification("mial"), "mail"),
        (lambda: client.team("visoin"), "vision"),
        (lambda: client.remove_team("visoin"), "vision"),
        (lambda: client.drain("gpu1"), "gpu-1"),
    ):
        with pytest.raises(NotFound) as refused:
            call()
        assert refused.value.hint.startswith(f"did you mean {near!r}? ")
    for wrong, said in (
        (lambda: client.change_team("vision", leave=["bob"]), "bob is not in vision"),
        (lambda: client.create_worker("w", labels={"gpus": 2}), "labels are a dictionary of texts"),  # type: ignore[dict-item]
        (lambda: client.set_notifier({"sendr": "a@b.example"}), "sendr"),
        (lambda: client.deliveries(state="faild"), "state: must be 'waiting', 'sent' or 'failed'"),
    ):
        with pytest.raises(ClientError, match=said) as faulty:
            wrong()
        assert "a job" not in faulty.value.message
        assert "submit" not in faulty.value.hint
    assert {worker.name for worker in client.workers()} == {"gpu-1"}
    with pytest.warns(UserWarning, match="the team visio is new: did you mean vision?"):
        client.change_team("visio", join=["bob"])
    with pytest.warns(UserWarning, match="no longer in visio: bob"):
        client.change_team("vision", join=["bob"])


def test_callers_learn_who_they_are(backend: Backend) -> None:
    me = backend.me()
    assert (me.owner, me.role) == ("ann", "admin")


def test_a_key_is_made_rotated_and_revoked(admin: Admin, rig: Rig) -> None:
    made = admin.create_key("bob", "viewer", name="laptop", lasts=HOUR, public_key=b"k" * 32)
    listed = next(key for key in admin.api_keys() if key.id == made.id)
    assert (listed.owner, listed.role, listed.name, listed.signed) == (
        "bob", "viewer", "laptop", True,
    )  # fmt: skip
    assert listed.expires_at == rig.clock.now + HOUR
    assert valid_key(rig, made.text)
    rotated = admin.rotate_key(made.id)
    assert (valid_key(rig, made.text), valid_key(rig, rotated)) == (False, True)
    admin.revoke_key(made.id)
    admin.revoke_key(made.id)
    assert not valid_key(rig, rotated)
    with refusal("key_not_found"):
        admin.rotate_key(made.id)
    with refusal("key_not_found"):
        admin.revoke_key("nobody")


def test_a_worker_is_made_rotated_and_deleted(admin: Admin, backend: Backend, rig: Rig) -> None:
    key, new = b"k" * 32, b"n" * 32
    made = admin.create_worker(
        "gpu-1", ephemeral=True, labels={"zone": "eu"}, lasts=HOUR, public_key=key
    )
    (row,) = backend.workers()
    assert (str(row.id), row.name, row.kind) == (made.id, "gpu-1", "ephemeral")
    kept = rig.row("SELECT pinned_labels, public_key FROM worker")
    assert kept == {"pinned_labels": {"zone": "eu"}, "public_key": key}
    with refusal("name_taken"):
        admin.create_worker("gpu-1")
    rotated = admin.rotate_worker(row.id)
    assert (valid_token(rig, made.text), valid_token(rig, rotated)) == (False, True)
    assert rig.row("SELECT public_key FROM worker")["public_key"] == key
    admin.rotate_worker(row.id, public_key=new)
    assert rig.row("SELECT public_key FROM worker")["public_key"] == new
    admin.delete_worker(row.id)
    assert backend.workers() == []
    assert admin.worker_named("gpu-1") == row.id
    with refusal("worker_not_found"):
        admin.worker_named("gpu-2")
    for act in (admin.delete_worker, admin.rotate_worker):
        with refusal("worker_not_found"):
            act(row.id)


def test_a_worker_that_holds_a_job_is_not_deleted(
    admin: Admin, backend: Backend, rig: Rig, store_url: str
) -> None:
    backend.submit([SPEC])
    Holder(rig, store_url)
    with refusal("worker_not_offline"):
        admin.delete_worker(backend.workers()[0].id)


def test_a_queue_tells_what_waits_and_what_runs(
    admin: Admin, backend: Backend, rig: Rig, store_url: str
) -> None:
    assert admin.queues() == []
    backend.submit([{**SPEC, "queue": "night"}] * 3)
    Holder(rig, store_url)
    (row,) = admin.queues()
    assert (row.name, row.paused, row.waiting, row.running, row.gpus) == ("night", False, 2, 1, 0)


def test_a_pause_keeps_the_limits_and_limits_keep_the_pause(
    admin: Admin, backend: Backend, rig: Rig
) -> None:
    backend.submit([SPEC])
    worker = rig.worker("w")
    admin.pause("default")
    assert worker.claim() == []
    admin.limit_queue("default", max_jobs=2, max_gpus=8)
    (row,) = admin.queues()
    assert (row.paused, row.max_jobs, row.max_gpus) == (True, 2, 8)
    admin.pause("default", paused=False)
    (row,) = admin.queues()
    assert (row.paused, row.max_jobs, row.max_gpus) == (False, 2, 8)
    assert len(worker.claim()) == 1


def test_an_owner_is_limited(admin: Admin, backend: Backend, rig: Rig) -> None:
    backend.submit([SPEC] * 3)
    admin.limit_owner("ann", OwnerSettings(max_jobs=1, weight=2.5))
    (limits,) = admin.owner_limits()
    assert (limits.owner, limits.max_jobs, limits.max_gpus, limits.weight) == ("ann", 1, None, 2.5)
    assert len(rig.worker("w").claim(3)) == 1


def test_a_worker_shows_its_measured_speed(backend: Backend, rig: Rig) -> None:
    rig.worker("a-measured", speed=Speed("numpy", cpus=2, cpu={"fp32": 40}, disk_mb_s=250))
    rig.worker("b-unmeasured")
    measured, unmeasured = backend.workers()
    assert measured.speed == {
        "method": "numpy", "cpus": 2, "cpu": {"fp32": 40}, "disk_mb_s": 250, "version": 1,
    }  # fmt: skip
    assert speed_text(measured.speed) == "cpu 40 GFLOPS"
    assert (unmeasured.speed, speed_text(unmeasured.speed)) == (None, "")


def test_the_trail_is_read_by_job_worker_actor_and_age(
    admin: Admin, backend: Backend, rig: Rig, store_url: str
) -> None:
    first, second = backend.submit([SPEC, SPEC])
    rig.clock.advance(5)
    holder = Holder(rig, store_url)
    rig.clock.advance(5)
    holder.end(Reason.SUCCEEDED)
    actions = [event.action for event in admin.events(job_id=first)]
    assert actions == ["submitted", "dispatched", "ended"]
    assert [event.action for event in admin.events(job_id=second)] == ["submitted"]
    (worker,) = backend.workers()
    by_worker = admin.events(worker_id=worker.id, actor=f"worker:{worker.id}")
    assert {event.action for event in by_worker} >= {"dispatched", "ended"}
    assert [event.job_id for event in admin.events(action="ended")] == [first]
    rig.clock.advance(3600)
    assert admin.events(since=HOUR) == []
    everything = admin.events(since=2 * HOUR)
    assert [event.at for event in everything] == sorted(event.at for event in everything)
    seen, after = 0, everything[0].at
    while page := admin.events(after=after, count=1):
        seen, after = seen + len(page), page[-1].at
    assert seen == len([event for event in everything if event.at > everything[0].at])


def test_every_act_is_in_the_trail(admin: Admin, backend: Backend) -> None:
    key = admin.create_key("bob", "viewer")
    admin.rotate_key(key.id)
    admin.revoke_key(key.id)
    worker = admin.create_worker("w")
    admin.rotate_worker(int(worker.id))
    backend.drain(int(worker.id))
    admin.delete_worker(int(worker.id))
    admin.pause("night")
    admin.limit_owner("ann", OwnerSettings(max_jobs=1, weight=1.0))
    backend.keep_template("nightly", {"command": ["ls"]})
    actor = backend.me().actor
    acts = [event.action for event in admin.events(actor=actor)]
    assert len(acts) == 10
    assert {"key_created", "key_rotated", "key_revoked", "worker_created"} <= set(acts)


def test_job_configs_are_kept_replaced_and_removed(backend: Backend) -> None:
    assert backend.templates() == []
    backend.keep_template("a/b-c", {"command": ["ls"]})
    backend.keep_template("a/b-c", {"command": ["pwd"], "queue": "night"})
    (kept,) = backend.templates()
    assert (kept.name, kept.spec) == ("a/b-c", {"command": ["pwd"], "queue": "night"})
    assert backend.template("a/b-c") == kept
    backend.remove_template("a/b-c")
    for act in (backend.remove_template, backend.template):
        with refusal("template_not_found"):
            act("a/b-c")


def test_jobs_have_the_source_that_a_registered_input_has_when_they_are_submitted(
    client: Client, backend: Backend, project: Path
) -> None:
    for source in ("s3://before", "s3://sets/imagenet"):
        backend.keep_input("imagenet", source)
    (kept,) = backend.inputs()
    assert (kept.name, kept.source) == ("imagenet", "s3://sets/imagenet")
    inputs = {"data": "imagenet", "tok": "hf://gpt2"}
    job = client.submit(project, "ls", inputs=inputs)
    backend.keep_template("with-data", {"command": ["ls"], "inputs": inputs})
    configured = client.submit(project, config="with-data")
    backend.remove_input("imagenet")
    given = {"data": "s3://sets/imagenet", "tok": "hf://gpt2"}
    assert all(backend.job(one.id).spec["inputs"] == given for one in (job, configured))
    for act in (
        lambda: backend.remove_input("imagenet"),
        lambda: client.submit(project, "ls", inputs=inputs),
        lambda: client.submit(project, config="with-data"),
        lambda: backend.keep_template("again", {"command": ["ls"], "inputs": inputs}),
    ):
        with refusal("input_unknown"):
            act()
    for name, source in (("a b", "s3://sets"), ("x", "./folder"), ("x", "imagenet")):
        with refusal("spec_invalid"):
            backend.keep_input(name, source)


@pytest.mark.parametrize(
    "spec",
    [
        {"colour": "red"},
        {"owner": "bob"},
        {"priority": 9999},
        {"idempotency_key": "k"},
        {"name": "0"},
    ],
)
def test_a_job_config_that_no_job_can_have_is_not_kept(
    backend: Backend, spec: dict[str, object]
) -> None:
    with refusal("spec_invalid"):
        backend.keep_template("wrong", spec)
    assert backend.templates() == []


def test_a_job_is_made_from_a_config_and_what_is_said_besides(
    client: Client, backend: Backend, project: Path
) -> None:
    config = {"command": ["ls"], "queue": "night", "labels": {"zone": "eu"},
              "resources": {"cpus": 2, "memory_mb": 64}}  # fmt: skip
    backend.keep_template("nightly", config)
    job = client.submit(project, config="nightly", labels={"disk": "ssd"}, memory="128MB")
    detail = backend.job(job.id)
    assert (detail.name, detail.queue, detail.owner) == ("project", "night", "ann")
    assert detail.spec["command"] == ["ls"]
    assert (detail.spec["resources"]["cpus"], detail.spec["resources"]["memory_mb"]) == (2, 128)
    assert detail.bundle_digest is not None
    with refusal("template_not_found"):
        client.submit(project, config="nothing")


def test_a_config_without_a_command_wants_one(
    client: Client, backend: Backend, project: Path
) -> None:
    backend.keep_template("bare", {"name": "kept", "queue": "night"})
    with refusal("command_empty"):
        client.submit(project, config="bare")
    job = client.submit(project, "pwd", config="bare")
    assert (backend.job(job.id).name, backend.job(job.id).queue) == ("kept", "night")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n", encoding="utf-8")
    # This file has no effect on a job submitted with a config.
    (folder / "forge.toml").write_text('name = "toml"\nqueue = "toml"\n', encoding="utf-8")
    return folder
