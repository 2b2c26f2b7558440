"""What admins do over HTTP: workers, keys, queues, owners' limits, the audit trail, reports."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from forge_schema.access import tokens
from forge_schema.access.tokens import TokenKind
from forge_schema.model.states import Role, WorkerStatus
from forge_schema.read.report_definitions import REPORTS
from support.http.api import SPEC, Signer, bearer, good, problem

if TYPE_CHECKING:
    from support.http.api import Api, Caller

WORKERS, KEYS, EVENTS = "/api/v1/admin/workers", "/api/v1/admin/keys", "/api/v1/admin/events"


@pytest.fixture
def root(api: Api) -> Caller:
    return api.key("root", Role.ADMIN)


def checked(api: Api, text: str) -> bool:
    return api.workers.check(tokens.parse(text, TokenKind.WORKER)) is not None


def test_a_worker_is_made_and_its_token_shown_once(api: Api, root: Caller) -> None:
    answer = root.call(
        "POST", WORKERS, {"name": "gpu-1", "kind": "ephemeral", "labels": {"a": "b"}}
    )
    made = good(answer)
    assert answer.status_code == 201
    assert checked(api, made["token"])
    (listed,) = root.get(WORKERS)["items"]
    assert (listed["id"], listed["name"], listed["kind"], listed["status"]) == (
        made["id"], "gpu-1", "ephemeral", "connecting",
    )  # fmt: skip
    assert made["token"] not in str(root.get(WORKERS))
    problem(root.call("POST", WORKERS, {"name": "gpu-1"}), 409, "name_taken")


def test_a_workers_token_is_rotated_and_may_expire(api: Api, root: Caller) -> None:
    made = root.post(WORKERS, {"name": "w"})
    fresh = root.post(f"{WORKERS}/{made['id']}/token", {"lasts_s": 60})["token"]
    assert (checked(api, made["token"]), checked(api, fresh)) == (False, True)
    api.rig.clock.advance(60)
    assert not checked(api, fresh)
    problem(root.call("POST", f"{WORKERS}/99/token", {}), 404, "worker_not_found")
    assert root.call("POST", f"{WORKERS}/{made['id']}/token").json()["token"]


def test_a_worker_is_drained_and_let_work_again(api: Api, root: Caller) -> None:
    worker = api.rig.worker()
    path = f"{WORKERS}/{worker.id}/drain"
    assert root.call("POST", path).is_success
    # A name says as much as the id.
    name = root.get(f"/api/v1/workers/{worker.id}")["name"]
    assert root.call("POST", f"{WORKERS}/{name}/drain", {"undo": True}).is_success
    problem(root.call("DELETE", f"{WORKERS}/nosuch"), 404, "worker_not_found")
    for undo, command in ((False, "drain"), (True, None)):
        for _ in range(2):
            assert root.post(path, {"undo": undo}) == {}
        assert root.get(f"/api/v1/workers/{worker.id}")["command"] == command
    problem(root.call("POST", f"{WORKERS}/99/drain", {}), 404, "worker_not_found")
    assert [
        e["action"]
        for e in root.get(f"{EVENTS}?worker_id={worker.id}&actor=key:{root.key_id}")["items"]
    ] == ["drain", "undrain"] * 2


def test_a_worker_is_deleted_only_when_it_is_offline(api: Api, root: Caller) -> None:
    worker = api.rig.worker()
    path = f"{WORKERS}/{worker.id}"
    api.rig.queue.renew(worker.id, worker.machine.boot_id, [], WorkerStatus.IDLE)
    assert "idle" in problem(root.call("DELETE", path), 409, "worker_not_offline")
    api.rig.registry.disconnect(worker.id, worker.machine.boot_id)
    assert root.call("DELETE", path).json() == {}
    problem(root.call("DELETE", path), 404, "worker_not_found")


def test_everybody_reads_the_fleet(api: Api) -> None:
    worker = api.rig.worker("gpu-1", labels={"zone": "eu"})
    viewer = api.key("ann", Role.VIEWER)
    (listed,) = viewer.get("/api/v1/workers")["items"]
    assert listed == viewer.get(f"/api/v1/workers/{worker.id}")
    assert (listed["name"], listed["labels"]["zone"], listed["leases"]) == ("gpu-1", "eu", 0)
    assert listed == viewer.get(f"/api/v1/workers/{listed['name']}")
    problem(viewer.call("GET", "/api/v1/workers/99"), 404, "worker_not_found")
    problem(viewer.call("GET", "/api/v1/workers/nobody"), 404, "worker_not_found")
    problem(viewer.call("GET", WORKERS), 403, "forbidden")


def test_a_key_is_made_rotated_and_revoked(api: Api, root: Caller) -> None:
    made = root.post(KEYS, {"owner": "ann", "role": "submitter", "name": "laptop", "lasts_s": 60})
    ann = api.caller(bearer(made["token"]))
    assert ann.get("/api/v1/me")["owner"] == "ann"
    listed = next(key for key in root.get(KEYS)["items"] if key["id"] == made["id"])
    assert (listed["name"], listed["role"], listed["signed"]) == ("laptop", "submitter", False)
    assert made["token"] not in str(root.get(KEYS))
    fresh = root.post(f"{KEYS}/{made['id']}/token")["token"]
    problem(ann.call("GET", "/api/v1/me"), 401, "unauthenticated")
    ann = api.caller(bearer(fresh))
    assert ann.get("/api/v1/me")["owner"] == "ann"
    for _ in range(2):
        assert root.call("DELETE", f"{KEYS}/{made['id']}").json() == {}
    problem(ann.call("GET", "/api/v1/me"), 401, "unauthenticated")
    problem(root.call("POST", f"{KEYS}/{made['id']}/token"), 404, "key_not_found")
    problem(root.call("DELETE", f"{KEYS}/nobody"), 404, "key_not_found")


def test_a_key_may_demand_signatures(api: Api, root: Caller) -> None:
    private = Ed25519PrivateKey.generate()
    public = base64.b64encode(private.public_key().public_bytes_raw()).decode()
    made = root.post(KEYS, {"owner": "ann", "role": "viewer", "public_key": public})
    problem(api.caller(bearer(made["token"])).call("GET", "/api/v1/me"), 401, "unauthenticated")
    signer = Signer(api, bearer(made["token"]), made["id"], private)
    assert signer.get("/api/v1/me")["owner"] == "ann"
    for wrong in (public[:-1], public[:-2] + "/=", base64.b64encode(b"k" * 33).decode()):
        body = {"owner": "ann", "role": "viewer", "public_key": wrong}
        assert "public_key" in problem(root.call("POST", KEYS, body), 422, "invalid")


def test_a_queue_is_set_whole(api: Api, root: Caller) -> None:
    job = root.submit(queue="team/night")
    worker = api.rig.worker()
    path = "/api/v1/admin/queues/team/night"
    assert root.call("PUT", path, {"paused": True, "max_gpus": 4}).json() == {}
    (queue,) = root.get("/api/v1/admin/queues")["items"]
    assert (queue["name"], queue["paused"], queue["max_jobs"], queue["max_gpus"]) == (
        "team/night", True, None, 4,
    )  # fmt: skip
    assert worker.claim() == []
    root.call("PUT", path, {"max_jobs": 1})
    (queue,) = root.get("/api/v1/admin/queues")["items"]
    assert (queue["paused"], queue["max_jobs"], queue["max_gpus"]) == (False, 1, None)
    assert worker.claim_one().fence.job_id == job
    assert worker.claim() == []
    told = [e["detail"] for e in root.get(f"{EVENTS}?action=queue%20set")["items"]]
    assert [(d["paused"], d["max_jobs"], d["max_gpus"]) for d in told] == [
        (True, None, 4), (False, 1, None),
    ]  # fmt: skip


def test_what_a_change_of_a_queue_leaves_out_stays(root: Caller) -> None:
    path = "/api/v1/admin/queues/night"

    def settings() -> tuple[object, ...]:
        (queue,) = root.get("/api/v1/admin/queues")["items"]
        return queue["paused"], queue["max_jobs"], queue["max_gpus"]

    for changes, expected in (
        ({"max_jobs": 2}, (False, 2, None)),
        ({"paused": True}, (True, 2, None)),
        ({"max_gpus": 8}, (True, 2, 8)),
        ({}, (True, 2, 8)),
        ({"max_jobs": None, "paused": False}, (False, None, 8)),
    ):
        assert root.call("PATCH", path, changes).json() == {}
        assert settings() == expected
    for wrong in ({"paused": None}, {"weight": 2}, {"max_jobs": -1}):
        problem(root.call("PATCH", path, wrong), 422, "invalid")


def test_an_owners_limits_are_set_whole(root: Caller) -> None:
    path = "/api/v1/admin/quotas/ann@a.example"
    assert root.call("PUT", path, {"max_jobs": 2, "weight": 2.5}).json() == {}
    assert root.get("/api/v1/admin/quotas")["items"] == [
        {
            "owner": "ann@a.example",
            "paused": False,
            "max_jobs": 2,
            "max_gpus": None,
            "guaranteed_gpus": None,
            "weight": 2.5,
            "approve_gpu_hours": None,
            "approve_cost": None,
            "gpu_hours_per_month": None,
            "cost_per_month": None,
            "when_spent": "hold",
            "used_gpu_hours": None,
            "used_cost": None,
            "spent_at": None,
        }
    ]
    for weight in (0, -1, 1001, float("nan"), float("inf")):
        problem(root.call("PUT", path, {"weight": weight}), 422, "invalid")


def test_limits_of_approvals_that_are_left_out_stay(root: Caller) -> None:
    path = "/api/v1/admin/quotas/ann"
    known = {"max_jobs": 2, "max_gpus": None, "weight": 1}
    for said, hours, cost in (
        (known, None, None),
        ({**known, "approve_gpu_hours": 8, "approve_cost": 5}, 8, 5),
        (known, 8, 5),
        ({"approve_gpu_hours": None}, None, 5),
        ({"approve_cost": 0}, None, 0),
        ({"approve_cost": None}, None, None),
    ):
        assert root.call("PUT", path, said).json() == {}
        (limits,) = root.get("/api/v1/admin/quotas")["items"]
        assert (limits["approve_gpu_hours"], limits["approve_cost"]) == (hours, cost)
        assert limits["max_jobs"] == said.get("max_jobs")
    (told, *_) = root.get("/api/v1/admin/events?action=owner quota set&count=1")["items"]
    assert told["detail"]["approve_cost"] is None


def test_the_trail_is_read_page_by_page_and_nothing_is_lost(api: Api, root: Caller) -> None:
    root.post("/api/v1/queue/submit", {"jobs": [SPEC] * 30})
    api.rig.clock.advance(1)
    root.submit()
    seen: list[tuple[str, int | None]] = []
    query, pages = "?count=7", 0
    while items := root.get(EVENTS + query)["items"]:
        seen += [(event["action"], event["job_id"]) for event in items]
        query = f"?count=7&after={items[-1]['at'].replace('+', '%2B')}"
        pages += 1
    submitted = [job for action, job in seen if action == "submitted"]
    assert len(submitted) == len(set(submitted)) == 31
    assert pages == 2


def test_the_trail_is_filtered(api: Api, root: Caller) -> None:
    job = root.submit()
    api.rig.worker().claim_one()
    assert [e["action"] for e in root.get(f"{EVENTS}?job_id={job}")["items"]] == [
        "submitted", "dispatched",
    ]  # fmt: skip
    assert root.get(f"{EVENTS}?actor=nobody")["items"] == []
    api.rig.clock.advance(100)
    assert root.get(f"{EVENTS}?since_s=99")["items"] == []
    assert root.get(f"{EVENTS}?since_s=101&action=key_created")["items"]
    answer = root.call("GET", f"{EVENTS}?after=2026-01-01T00:00:00")
    assert "after" in problem(answer, 422, "invalid")
    assert "colour" in problem(root.call("GET", f"{EVENTS}?colour=red"), 422, "invalid")


def test_a_failed_registration_is_in_the_trail(api: Api, root: Caller) -> None:
    made = root.post(WORKERS, {"name": "w"})
    wrong = tokens.mint(TokenKind.WORKER, str(made["id"]))[0]
    headers = {"X-Worker-Token": wrong}
    assert api.http.post("/api/v1/workers/register", headers=headers, json={}).status_code == 401
    (event,) = root.get(f"{EVENTS}?action=registration_refused")["items"]
    assert event["detail"]["said"] == str(made["id"])
    assert wrong not in str(event)


def test_reports_are_the_views(api: Api, root: Caller) -> None:
    assert root.get("/api/v1/reports")["items"] == list(REPORTS)
    root.submit()
    (row,) = root.get("/api/v1/reports/queue_demand")["items"]
    assert (row["waiting"], row["demand"]) == (1, 1)
    assert root.get("/api/v1/reports/jobs?count=1")["items"][0]["state"] == "queued"
    problem(root.call("GET", "/api/v1/reports/pg_authid"), 404, "report_unknown")
    submitter = api.key("bob")
    assert submitter.get("/api/v1/reports/jobs")["items"] == []
    problem(submitter.call("GET", "/api/v1/reports/queue_demand"), 403, "forbidden")


def test_a_key_that_lasts_is_over_when_it_said(api: Api, root: Caller) -> None:
    caller = api.key("root", Role.ADMIN, lasts=timedelta(seconds=5))
    caller.get(KEYS)
    api.rig.clock.advance(5)
    problem(caller.call("GET", KEYS), 401, "unauthenticated")
    root.get(KEYS)
