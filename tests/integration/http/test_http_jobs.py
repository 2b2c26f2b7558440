"""Jobs over HTTP: submit, read, act; one owner's are nobody else's business."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from forge_schema.database.pool import Database
from forge_schema.model.attempt_records import ArtifactRecord, LogChunkRecord
from forge_schema.model.lease import End
from forge_schema.model.states import Reason, Role
from forge_schema.storage.keys import AttemptKeys
from support.http.api import SPEC, problem

if TYPE_CHECKING:
    from support.http.api import Api, Caller

SUBMIT, CHECK, JOBS = "/api/v1/queue/submit", "/api/v1/queue/check", "/api/v1/queue/jobs"
NIGHTLY = {
    "command": ["make", "eval"],
    "env": {"A": "1", "B": "2"},
    "resources": {"gpus": 1, "memory_mb": 2048},
    "labels": {"zone": "eu*"},
}


@pytest.fixture
def ann(api: Api) -> Caller:
    return api.key("ann")


@pytest.fixture
def root(api: Api) -> Caller:
    return api.key("root", Role.ADMIN)


def test_a_submitted_job_is_the_callers(ann: Caller) -> None:
    first, second = ann.post(SUBMIT, {"jobs": [SPEC, {**SPEC, "priority": 7}]})["job_ids"]
    told = ann.get(f"{JOBS}/{second}")
    assert (told["owner"], told["state"], told["priority"]) == ("ann", "queued", 7)
    assert told["spec"]["command"] == ["true"]
    assert [job["job_id"] for job in ann.get(JOBS)["items"]] == [second, first]
    events = ann.get(f"{JOBS}/{first}/events")["items"]
    assert [(e["actor"], e["action"]) for e in events] == [(f"key:{ann.key_id}", "submitted")]


def test_a_repeated_submit_answers_the_same(api: Api, ann: Caller) -> None:
    job = {**SPEC, "idempotency_key": "once"}
    assert ann.submit(**job) == ann.submit(**job)
    assert api.rig.count("job") == 1
    other = {"jobs": [{**job, "priority": 1}, SPEC]}
    problem(ann.call("POST", SUBMIT, other), 409, "idempotency_conflict")
    assert api.rig.count("job") == 1
    assert api.key("bob").submit(**job) != ann.submit(**job)


def test_a_check_stores_nothing(api: Api, ann: Caller) -> None:
    assert ann.post(CHECK, {"jobs": [SPEC]}) == {}
    problem(ann.call("POST", CHECK, {"jobs": [{**SPEC, "gpus": 1}]}), 422, "invalid")
    assert [api.rig.count(table) for table in ("job", "lane", "event")] == [0, 0, 1]


def test_only_an_admin_submits_for_others(ann: Caller, root: Caller) -> None:
    job = root.submit(owner="ann")
    assert ann.get(f"{JOBS}/{job}")["owner"] == "ann"
    assert root.get(f"{JOBS}/{root.submit()}")["owner"] == "root"
    ann.submit(owner="ann")
    problem(ann.call("POST", SUBMIT, {"jobs": [{**SPEC, "owner": "bob"}]}), 403, "forbidden")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"colour": "red"}, "jobs.0.colour"),
        ({"priority": 1001}, "jobs.0.priority"),
        ({"priority": 2**70}, "jobs.0.priority"),
        ({"command": [""]}, "jobs.0.command"),
        ({"command": ["a\0"]}, "jobs.0.command.0"),
        ({"command": ["\ud800"]}, "jobs.0.command.0"),
        ({"env": {"\ud800": "x"}}, "jobs.0.env"),
        ({"env": {"LD_PRELOAD": "x"}}, "jobs.0.env"),
        ({"labels": {"a": "b" * 201}}, "jobs.0.labels.a"),
        ({"resources": {"cpus": float("nan")}}, "jobs.0.resources.cpus"),
        ({"delay_s": float("inf")}, "jobs.0.delay_s"),
        ({"owner": 7}, "jobs.0.owner"),
        ({"config_name": 7}, "jobs.0.config_name"),
        ({"config_name": "x", "owner": {}}, "jobs.0.owner"),
        ({"config_name": "x", "owner": None}, "jobs.0.owner"),
        ({"config_name": "x\0"}, "jobs.0.config_name"),
        ({"config_name": "\ud800"}, "jobs.0.config_name"),
        ({"bundle_digest": "E" * 64}, "jobs.0.bundle_digest"),
    ],
)
def test_what_is_no_job_is_refused_by_its_place(
    shared_api: Api, wrong: dict[str, Any], named: str
) -> None:
    root = shared_api.key("root", Role.ADMIN)
    answer = root.call("POST", SUBMIT, {"jobs": [{**SPEC, **wrong}]})
    assert f"body.{named}" in problem(answer, 422, "invalid")


def test_a_template_is_laid_under_a_job(api: Api, ann: Caller) -> None:
    ann.call("PUT", "/api/v1/queue/templates/nightly", {"spec": NIGHTLY})
    changes = {"env": {"B": "3"}, "resources": {"gpus": 2}, "priority": 5, "name": "night"}
    job = ann.post(SUBMIT, {"jobs": [{"config_name": "nightly", **changes}]})["job_ids"][0]
    told = ann.get(f"{JOBS}/{job}")
    assert (told["name"], told["priority"]) == ("night", 5)
    assert told["spec"]["env"] == {"A": "1", "B": "3"}
    needs = told["spec"]["resources"]
    assert (needs["gpus"], needs["memory_mb"]) == (2, 2048)
    assert api.rig.row("SELECT labels FROM shape")["labels"]["zone"] == "eu*"


def test_a_job_of_a_config_without_a_name_has_the_configs(ann: Caller) -> None:
    for name, called in (("nightly", "nightly"), ("2026", "job-2026")):
        ann.call("PUT", f"/api/v1/queue/templates/{name}", {"spec": NIGHTLY})
        (job,) = ann.post(SUBMIT, {"config_name": name})["job_ids"]
        assert ann.get(f"{JOBS}/{job}")["name"] == called


def test_a_body_is_json_whatever_curl_calls_it(api: Api, ann: Caller) -> None:
    form = {**ann.headers, "Content-Type": "application/x-www-form-urlencoded"}
    body = json.dumps(SPEC)
    answer = api.http.post(SUBMIT, headers=form, content=body)
    assert ann.get(f"{JOBS}/{answer.json()['job_ids'][0]}")["name"] == SPEC["name"]
    problem(api.http.post(SUBMIT, headers=form, content="name=digits"), 422, "invalid")
    as_text = {**ann.headers, "Content-Type": "text/plain"}
    refused = api.http.post(SUBMIT, headers=as_text, content=body)
    problem(refused, 422, "invalid")
    assert "send JSON as Content-Type: application/json" in refused.json()["hint"]


def test_words_of_others_lead_to_ours(root: Caller) -> None:
    for given, ours in (
        ("worker_type", "kind"),
        ("worker_labels", "labels"),
        ("worker_name", "name"),
    ):
        answer = root.call("POST", "/api/v1/admin/workers", {"name": "w", given: "x"})
        assert f"did you mean {ours}?" in problem(answer, 422, "invalid")


def test_a_template_is_its_owners(api: Api, ann: Caller, root: Caller) -> None:
    path = "/api/v1/queue/templates/nightly"
    ann.call("PUT", path, {"spec": {**NIGHTLY, "name": "n"}})
    bob = api.key("bob")
    request = {"jobs": [{"config_name": "nightly"}]}
    problem(bob.call("POST", SUBMIT, request), 404, "template_not_found")
    problem(bob.call("GET", path), 404, "template_not_found")
    problem(bob.call("GET", f"{path}?owner=ann"), 403, "forbidden")
    assert bob.get("/api/v1/queue/templates")["items"] == []
    assert root.get(f"{path}?owner=ann")["spec"]["name"] == "n"
    job = root.post(SUBMIT, {"jobs": [{"config_name": "nightly", "owner": "ann"}]})["job_ids"][0]
    assert ann.get(f"{JOBS}/{job}")["name"] == "n"
    assert ann.call("DELETE", path).json() == {}
    problem(ann.call("DELETE", path), 404, "template_not_found")


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"owner": "bob"}, "owner"),
        ({"idempotency_key": "k"}, "idempotency_key"),
        ({"config_name": "other"}, "config_name"),
        ({"colour": "red"}, "colour"),
        ({"resources": {"gpus": -1}}, "resources.gpus"),
    ],
)
def test_a_template_is_checked_when_it_is_kept(
    shared_api: Api, spec: dict[str, Any], named: str
) -> None:
    ann = shared_api.key("ann")
    answer = ann.call("PUT", "/api/v1/queue/templates/t", {"spec": spec})
    assert f"body.spec.{named}" in problem(answer, 422, "invalid")
    assert ann.get("/api/v1/queue/templates")["items"] == []


def test_lists_hold_the_callers_own_jobs(api: Api, ann: Caller, root: Caller) -> None:
    bob = api.key("bob", Role.SUBMITTER)
    mine, his = ann.submit(), bob.submit(delay_s=60)

    def listed(caller: Caller, query: str = "") -> list[int]:
        return [job["job_id"] for job in caller.get(JOBS + query)["items"]]

    assert (listed(ann), listed(bob), listed(root)) == ([mine], [his], [his, mine])
    assert (listed(ann, "?owner=bob"), listed(root, "?owner=bob")) == ([], [his])
    assert (listed(root, "?state=queued"), listed(root, "?state=failed")) == ([his, mine], [])
    # As a client of 0.2.0 says it.
    assert listed(root, "?state=scheduled&state=dead") == [his, mine]
    problem(root.call("GET", f"{JOBS}?state=asleep"), 422, "invalid")
    assert listed(root, f"?before={his}&count=1") == [mine]
    both = {"job_ids": [mine, his, 99]}
    for caller, seen in ((ann, {mine}), (bob, {his}), (root, {mine, his})):
        items = caller.post("/api/v1/queue/statuses", both)["items"]
        assert {job["job_id"] for job in items} == seen


def test_somebody_elses_job_is_as_absent_as_none(api: Api, ann: Caller) -> None:
    job = ann.submit()
    bob = api.key("bob")
    for method, path in (
        ("GET", ""),
        ("GET", "/attempts"),
        ("GET", "/events"),
        ("GET", "/logs"),
        ("GET", "/artifacts"),
        ("POST", "/cancel"),
        ("POST", "/retry"),
        ("POST", "/preempt"),
    ):
        theirs, none = (bob.call(method, f"{JOBS}/{i}{path}") for i in (job, job + 1))
        assert problem(theirs, 404, "job_unknown") == f"there is no job {job}"
        assert problem(none, 404, "job_unknown") == f"there is no job {job + 1}"
        assert theirs.json()["hint"] == none.json()["hint"]
    assert ann.get(f"{JOBS}/{job}")["state"] == "queued"


def test_a_viewer_only_reads(api: Api, ann: Caller) -> None:
    job = ann.submit()
    viewer = api.key("ann", Role.VIEWER)
    assert viewer.get(f"{JOBS}/{job}")["job_id"] == job
    for path in (f"{JOBS}/{job}/cancel", f"{JOBS}/{job}/retry", f"{JOBS}/{job}/preempt"):
        assert "viewer" in problem(viewer.call("POST", path), 403, "forbidden")
    problem(viewer.call("POST", SUBMIT, {"jobs": [SPEC]}), 403, "forbidden")


def test_a_waiting_job_is_cancelled_and_a_running_one_asked(api: Api, ann: Caller) -> None:
    waiting, running = ann.submit(), ann.submit(priority=1)
    api.rig.worker().claim_one()
    assert ann.post(f"{JOBS}/{running}/preempt") == {"asked": True}
    assert ann.post(f"{JOBS}/{waiting}/preempt") == {"asked": False}
    for _ in range(2):
        assert ann.post(f"{JOBS}/{waiting}/cancel") == {"state": "cancelled"}
        assert ann.post(f"{JOBS}/{running}/cancel") == {"state": "running"}
    assert ann.get(f"{JOBS}/{running}")["asked"] == "cancelled"
    problem(ann.call("POST", f"{JOBS}/{waiting}/retry"), 409, "not_retryable")


def test_a_failed_job_is_retried(api: Api, ann: Caller) -> None:
    job = ann.submit(max_failures=0)
    api.rig.finish(api.rig.worker().claim_one(), Reason.EXIT_CODE, exit_code=3)
    assert ann.get(f"{JOBS}/{job}")["state"] == "failed"
    (attempt,) = ann.get(f"{JOBS}/{job}/attempts")["items"]
    assert (attempt["reason"], attempt["exit_code"], attempt["worker"]) == ("exit_code", 3, "w")
    assert ann.post(f"{JOBS}/{job}/retry") == {}
    assert ann.get(f"{JOBS}/{job}")["state"] == "queued"


def test_what_a_job_wrote_is_read_by_its_urls(api: Api, ann: Caller) -> None:
    job = ann.submit()
    grant = api.rig.worker().claim_one()
    keys = AttemptKeys(job, grant.attempt, grant.fence.token)
    data = b"seen"
    digest = hashlib.sha256(data).hexdigest()
    for number in range(2):
        key = keys.log_chunk(number)
        api.services.store.put(key, data)
        chunk = LogChunkRecord(number, key, number * 4, 4, digest)
        assert api.rig.records.add_log_chunk(grant.fence, chunk)
    artifact = ArtifactRecord("a b/\u00fc.txt", keys.artifact("a b/\u00fc.txt"), 4, digest)
    api.services.store.put(artifact.key, data)
    assert api.rig.records.add_artifacts(grant.fence, [artifact])
    api.rig.queue.finish([End(grant.fence, Reason.SUCCEEDED)])
    first, second = ann.get(f"{JOBS}/{job}/logs")["items"]
    (left,) = ann.get(f"{JOBS}/{job}/artifacts")["items"]
    assert (left["path"], left["bytes"], left["sha256"]) == (artifact.path, 4, digest)
    for item in (first, second, left):
        assert httpx.get(item["url"], timeout=60).content == data
    place = f"token={first['token']}&rank=0&number={first['number']}"
    assert [c["number"] for c in ann.get(f"{JOBS}/{job}/logs?{place}")["items"]] == [1]
    assert ann.get(f"{JOBS}/{job}/logs?attempt=2")["items"] == []


def test_a_bundle_is_uploaded_once(api: Api, ann: Caller) -> None:
    data = b"a bundle"
    digest = hashlib.sha256(data).hexdigest()
    told = {"digest": digest, "bytes": len(data)}
    upload = ann.post("/api/v1/bundles", told)
    assert (upload["stored"], 0 < upload["expires_in_s"] <= 900) == (False, True)
    request = {"headers": upload["headers"], "content": data, "timeout": 60}
    assert httpx.request(upload["method"], upload["url"], **request).is_success
    # A lost answer costs no more than the same upload once more.
    assert httpx.request(upload["method"], upload["url"], **request).is_success
    assert ann.post("/api/v1/bundles", told) == {"stored": True}
    viewer = api.key("ann", Role.VIEWER)
    problem(viewer.call("POST", "/api/v1/bundles", told), 403, "forbidden")


def test_a_lane_is_looked_up_once(api: Api, ann: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ann.submit()
    asked: list[str] = []
    rows = Database.rows

    def heard(self: Database, name: str, /, **params: Any) -> list[dict[str, Any]]:  # noqa: ANN401  its own
        asked.append(name)
        return rows(self, name, **params)

    monkeypatch.setattr(Database, "rows", heard)
    second = api.key("ann").submit()
    assert [name for name in asked if name in {"ensure_lane", "submit_alike"}] == ["submit_alike"]
    assert api.rig.count("lane") == 1
    assert second > first


def test_a_job_is_named_in_a_path_as_people_name_it(api: Api) -> None:
    ann, bob = api.key("ann"), api.key("bob")
    job = ann.submit(name="resnet 50")
    for handle in (str(job), "resnet%2050", "resnet", "@last"):
        assert ann.get(f"/api/v1/queue/jobs/{handle}")["job_id"] == job
    refused = bob.call("GET", "/api/v1/queue/jobs/resnet")
    assert (refused.status_code, refused.json()["code"]) == (404, "job_unknown")
    assert bob.call("POST", "/api/v1/queue/jobs/resnet/cancel").status_code == 404
    assert ann.post("/api/v1/queue/jobs/resnet/cancel") == {"state": "cancelled"}
    ann.submit(name="resnet 101")
    assert ann.call("GET", "/api/v1/queue/jobs/resnet").json()["code"] == "job_ambiguous"


def test_what_is_misspelt_or_left_out_is_not_taken_for_all(ann: Caller) -> None:
    job = ann.submit()
    problem(ann.call("GET", f"{JOBS}/{job}/artifacts?afer=x"), 422, "invalid")
    problem(ann.call("GET", f"{JOBS}/{job}/explain?worker=3"), 422, "invalid")
    # Every failed delivery would be sent again.
    problem(ann.call("POST", "/api/v1/queue/retry-deliveries"), 422, "invalid")
    assert ann.post("/api/v1/queue/retry-deliveries", {}) == {"retried": 0}
    assert ann.post(f"{JOBS}/{job}/cancel", None) == {"state": "cancelled"}
