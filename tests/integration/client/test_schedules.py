"""Schedules through both backends and the SDK: what is kept, refused, and seen by whom."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from forge_client import Client, ClientError
from forge_schema.model.states import Role
from support.client.reaching import WAYS, key, reaching
from support.http.api import bearer, problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_client.backend import Backend
    from support.http.api import Api
    from support.queue.rig import Rig

SPEC = {"name": "x", "command": ["ls"]}
DAILY = "0 3 * * *"


@pytest.fixture(params=WAYS)
def client(request: pytest.FixtureRequest, rig: Rig, tmp_path: Path) -> Iterator[Client]:
    with reaching(request.param, rig, (tmp_path / "store").as_uri()) as client:
        yield client


@pytest.fixture
def backend(client: Client) -> Backend:
    return client.backend


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('first')")
    return folder


def refusal(code: str) -> pytest.RaisesExc[ClientError]:
    return pytest.RaisesExc(ClientError, check=lambda error: error.code == code)


def test_a_schedule_is_kept_paused_resumed_and_removed(backend: Backend, rig: Rig) -> None:
    assert backend.schedules() == []
    kept = backend.keep_schedule("a/b c", DAILY, SPEC, timezone="Europe/Berlin", overlap=False)
    assert (kept.name, kept.owner, kept.cron, kept.timezone) == (
        "a/b c", "ann", DAILY, "Europe/Berlin",
    )  # fmt: skip
    assert (kept.spec, kept.overlap, kept.paused) == (SPEC, False, False)
    first = rig.clock.now + timedelta(hours=2)
    assert kept.next_times == [first + timedelta(days=n) for n in range(3)]
    assert kept.next_times[0].isoformat() == "2031-01-01T03:00:00+01:00"
    assert (backend.schedule("a/b c"), backend.schedules()) == (kept, [kept])
    backend.pause_schedule("a/b c")
    assert backend.schedule("a/b c").paused
    backend.pause_schedule("a/b c", paused=False)
    assert backend.schedule("a/b c") == kept
    backend.remove_schedule("a/b c")
    assert backend.schedules() == []
    for act in (backend.schedule, backend.pause_schedule, backend.remove_schedule):
        with refusal("schedule_not_found"):
            act("a/b c")


@pytest.mark.parametrize(
    ("code", "name", "cron", "timezone", "spec"),
    [
        ("cron_invalid", "n", "0 3 * *", "UTC", SPEC),
        ("cron_invalid", "n", "0 0 30 2 *", "UTC", SPEC),
        ("cron_invalid", "n", "*" * 9, "UTC", SPEC),
        ("timezone_unknown", "n", DAILY, "Mars/Olympus", SPEC),
        ("spec_invalid", "n" * 101, DAILY, "UTC", SPEC),
        ("spec_invalid", "n", DAILY, "UTC", {"command": ["ls"]}),
        ("spec_invalid", "n", DAILY, "UTC", {**SPEC, "priority": 5000}),
        ("spec_invalid", "n", DAILY, "UTC", {**SPEC, "idempotency_key": "k"}),
        ("spec_invalid", "n", DAILY, "UTC", {**SPEC, "owner": "bob"}),
        ("template_not_found", "n", DAILY, "UTC", {**SPEC, "config_name": "none"}),
        ("job_unknown", "n", DAILY, "UTC", {**SPEC, "from_checkpoint": {"job_id": 9}}),
        ("job_unknown", "n", DAILY, "UTC", {**SPEC, "after_ok": [9]}),
    ],
)
def test_what_could_never_be_submitted_is_refused(  # noqa: PLR0917  one row of the table
    backend: Backend, code: str, name: str, cron: str, timezone: str, spec: dict[str, object]
) -> None:
    with refusal(code) as refused:
        backend.keep_schedule(name, cron, spec, timezone=timezone)
    assert refused.value.message
    assert backend.schedules() == []


def test_a_config_is_read_when_the_schedule_is_added(backend: Backend, rig: Rig) -> None:
    backend.keep_template("base", {"command": ["old"], "queue": "night"})
    kept = backend.keep_schedule("n", DAILY, {"name": "x", "config_name": "base"})
    assert kept.spec == {"name": "x", "command": ["old"], "queue": "night"}
    backend.remove_template("base")
    rig.clock.advance(86_400)
    rig.tick.run()
    assert backend.jobs()[0].queue == "night"


def test_jobs_run_the_code_of_the_day_the_schedule_was_added(
    client: Client, project: Path, rig: Rig
) -> None:
    kept = client.schedule("nightly", DAILY, project, "python train.py", gpus=1, overlap=False)
    assert kept.spec["resources"] == {"gpus": 1}
    assert [schedule.name for schedule in client.schedules()] == ["nightly"]
    (project / "train.py").write_text("print('second')")
    rig.clock.advance(86_400)
    rig.tick.run()
    (job,) = client.jobs()
    assert (job.name, job.bundle_digest) == ("nightly", kept.spec["bundle_digest"])
    assert client.backend.schedule("nightly").error is None
    client.pause_schedule("nightly")
    client.pause_schedule("nightly", paused=False)
    client.remove_schedule("nightly")
    assert client.schedules() == []


def test_a_run_by_hand_is_one_job_and_moves_no_time(
    client: Client, backend: Backend, rig: Rig
) -> None:
    kept = backend.keep_schedule("n", DAILY, SPEC)
    backend.pause_schedule("n")
    at = rig.clock.now
    first = backend.run_schedule("n", at=at)
    assert backend.run_schedule("n", at=at) == first
    later = backend.keep_schedule("n", DAILY, {**SPEC, "queue": "night"}, overlap=False)
    assert backend.run_schedule("n", at=at) == first
    assert later.next_times == kept.next_times == backend.schedule("n").next_times
    with refusal("schedule_still_running"):
        client.run_schedule("n")
    rig.clock.advance(86_400)
    rig.tick.run()
    shown = backend.schedule("n")
    assert f"job {first} had not ended" in str(shown.error)
    backend.cancel(first)
    second = client.run_schedule("n")
    assert second.status().queue == "night"
    assert [job.job_id for job in client.jobs()] == [second.id, first]
    assert (shown.last_job_id, backend.schedule("n").last_job_id) == (first, second.id)
    assert backend.schedule("n").next_times == shown.next_times
    with refusal("schedule_not_found"):
        client.run_schedule("none")


def test_others_schedules_are_neither_seen_nor_changed(api: Api, rig: Rig) -> None:
    ann, bob = (api.key(owner, Role.SUBMITTER) for owner in ("ann", "bob"))
    root = api.caller(bearer(key(rig, "root")))
    path = "/api/v1/queue/schedules/nightly"
    body = {"cron": DAILY, "spec": SPEC}
    assert ann.call("PUT", path, body).status_code == 200
    assert bob.get("/api/v1/queue/schedules")["items"] == []
    for method, said in (("GET", None), ("PATCH", {"paused": True}), ("DELETE", None)):
        problem(bob.call(method, path, said), 404, "schedule_not_found")
        problem(bob.call(method, f"{path}?owner=ann", said), 403, "forbidden")
    run = "/api/v1/queue/run-schedule/nightly"
    problem(bob.call("POST", run), 404, "schedule_not_found")
    problem(bob.call("POST", f"{run}?owner=ann"), 403, "forbidden")
    problem(bob.call("PUT", f"{path}?owner=ann", body), 403, "forbidden")
    problem(bob.call("GET", "/api/v1/queue/schedules?owner=ann"), 403, "forbidden")
    assert bob.call("PUT", path, body).status_code == 200
    owners = [one["owner"] for one in root.get("/api/v1/queue/schedules")["items"]]
    assert owners == ["ann", "bob"]
    assert root.call("PATCH", f"{path}?owner=ann", {"paused": True}).status_code == 200
    assert [ann.get(path)["paused"], bob.get(path)["paused"]] == [True, False]


def test_only_code_that_the_owner_has_uploaded_is_scheduled(api: Api) -> None:
    ann = api.key("ann", Role.SUBMITTER)
    spec = {**SPEC, "bundle_digest": "ab" * 32}
    answer = ann.call("PUT", "/api/v1/queue/schedules/n", {"cron": DAILY, "spec": spec})
    problem(answer, 404, "not_uploaded")
    assert ann.get("/api/v1/queue/schedules")["items"] == []
