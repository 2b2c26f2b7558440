"""What one caller may keep, and leave behind in the audit trail."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from forge_functions.middleware import bulkheads
from forge_schema.model.states import Role
from forge_schema.read.audit import Audit
from forge_schema.service import caller
from support.http.api import good, opened, problem
from support.http.http_worker import raw_worker

if TYPE_CHECKING:
    from pathlib import Path

    from support.http.api import Api
    from support.queue.rig import Rig

HOOK = {"kind": "webhook", "target": "https://example.com/hook"}
JOB = {"name": "nightly", "command": ["true"]}


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        ("notification", "/api/v1/queue/notifications/", HOOK),
        ("template", "/api/v1/queue/templates/", {"spec": JOB}),
        ("input", "/api/v1/queue/inputs/", {"source": "s3://sets"}),
        ("schedule", "/api/v1/queue/schedules/", {"cron": "0 0 1 1 *", "spec": JOB}),
    ],
)
def test_an_owner_keeps_only_so_many(
    api: Api, monkeypatch: pytest.MonkeyPatch, kind: str, path: str, body: dict[str, object]
) -> None:
    monkeypatch.setitem(caller.MOST_KEPT, kind, 2)
    ann = api.key()
    for name in ("a", "b", "a"):
        good(ann.call("PUT", path + name, body))
    told = ann.call("PUT", path + "c", body)
    problem(told, 422, "too_many_kept")
    assert f"forge {kind} remove" in told.json()["hint"]
    good(api.key("bob").call("PUT", path + "c", body))


def test_what_a_known_caller_was_refused_is_in_the_trail_and_cannot_fill_it(api: Api) -> None:
    viewer = api.key("bob", Role.VIEWER)
    for _ in range(30):
        problem(viewer.call("POST", "/api/v1/queue/jobs/1/cancel"), 403, "forbidden")
    viewer.call("GET", "/api/v1/queue/jobs/99999")
    noted = [one for one in Audit(api.rig.database).events() if one["action"] == "refused"]
    assert len(noted) == 10
    assert noted[0]["actor"] == f"key:{viewer.key_id}"
    detail = {"method": "POST", "path": "/api/v1/queue/jobs/1/cancel", "status": 403}
    assert noted[0]["detail"] == detail


def test_a_worker_cannot_fill_the_trail_with_registrations(rig: Rig, tmp_path: Path) -> None:
    with opened(rig, tmp_path / "store", caller_rate=1000) as api:
        worker = raw_worker(api)
        statuses = []
        for _ in range(20):
            worker.boot_id = uuid4()
            statuses.append(worker.post("/register", worker.machine()).status_code)
    assert statuses.count(429) >= 9
    assert statuses[0] == 200


def test_a_caller_sends_only_so_many_named_values(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulkheads, "NAMED_PER_S", 1.0)
    many = {"jobs": [{f"k{n}": 1 for n in range(9_000)} for _ in range(14)]}
    with opened(rig, tmp_path / "store", caller_rate=1000) as api:
        ann, bob = api.key(), api.key("bob")
        told = [ann.call("POST", "/api/v1/queue/check", many) for _ in range(3)]
        assert [one.status_code for one in told] == [422, 422, 429]
        assert int(told[2].headers["retry-after"]) > 0
        problem(bob.call("POST", "/api/v1/queue/check", many), 422, "invalid")


def test_a_report_counts_as_many_requests(rig: Rig, tmp_path: Path) -> None:
    with opened(rig, tmp_path / "store", caller_rate=0.2) as api:
        ann = api.key(role=Role.VIEWER)
        good(ann.call("GET", "/api/v1/me"))
        good(ann.call("GET", "/api/v1/reports/attempt_history"))
        told = ann.call("GET", "/api/v1/me")
        problem(told, 429, "too_many_requests")
        assert int(told.headers["retry-after"]) > 50
