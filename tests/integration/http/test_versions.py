"""What callers of another version meet: paths, unknown fields, pages of lists."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.lease import End
from forge_schema.model.states import Phase, Reason, Role, Standing, State, WorkerStatus
from forge_worker.queue.http import gateway as http_gateway
from support.http.api import SPEC, good, opened, problem
from support.http.http_worker import PLENTY, claimed, gateway, held, lease, raw_worker
from support.http.server import listening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from support.http.api import Api, Caller
    from support.queue.rig import Rig

# Their fields are a user's or a machine's own.
FREE_FORM = {"values", "labels", "condition", "spec", "env"}


def newer(said: Any) -> Any:  # noqa: ANN401  whatever JSON holds
    """Return what a newer version might send: each object with a field of its own."""
    if isinstance(said, list):
        return [newer(one) for one in said]
    if not isinstance(said, dict):
        return said
    fields = {k: v if k in FREE_FORM else newer(v) for k, v in said.items()}
    return {**fields, "newer": {"than": ["this"]}}


class Newer:
    """A server whose every answer has fields that this version does not know."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started: list[Message] = []
        body = b""

        async def sending(message: Message) -> None:
            nonlocal body
            if message["type"] == "http.response.start":
                started.append(message)
                return
            body += message.get("body", b"")
            if not message.get("more_body", False):
                told = json.dumps(newer(json.loads(body))).encode()
                headers = [h for h in started[0]["headers"] if h[0] != b"content-length"]
                await send({**started[0], "headers": headers})
                await send({"type": "http.response.body", "body": told})

        await self._app(scope, receive, sending)


@pytest.fixture
def api(rig: Rig, tmp_path: Path) -> Iterator[Api]:
    with opened(rig, tmp_path / "store", long_poll_s=0) as api:
        yield api


def test_every_path_names_the_version_of_the_api(api: Api) -> None:
    assert api.http.delete("/api/v1/me").headers["allow"] == "GET"
    for path in ("/api/me", "/api/v2/me"):
        problem(api.key().call("GET", path), 404, "not_found")
    paths = api.http.get("/openapi.json").json()["paths"]
    assert all(path.startswith("/api/v1/") for path in paths if path != "/health")


def test_a_newer_worker_is_understood(api: Api) -> None:
    worker, ann = raw_worker(api, registered=False), api.key()
    send = worker.post
    job = ann.submit()
    gpu = {"uuid": "GPU-1", "name": "A", "vram_mb": 1}
    good(send("/register", newer(worker.machine(gpus=[gpu], labels={"zone": "eu"}))))
    boot = {"boot_id": str(worker.boot_id)}
    free = {"cpus": 1, "memory_mb": 9, "disk_mb": 9}
    (grant,) = good(send("/claim", newer({**boot, "free": free, "count": 1})))["grants"]
    at = f"/job/{job}"
    good(send(f"{at}/status", newer({**held(grant), "phase": "running"})))
    beat = {**boot, "status": "busy", "leases": [lease(grant)]}
    assert good(send("/heartbeat", newer(beat)))["standings"][0]["standing"] == "ok"
    good(
        send(f"{at}/metrics", newer({**held(grant), "lines": [{"number": 0, "values": {"a": 1}}]}))
    )
    assert ann.get(f"/api/v1/queue/jobs/{job}/metrics")["items"][0]["values"] == {"a": 1}
    end = {"reason": "succeeded", "exit_code": 0, "usage": {"cpu_seconds": 1}}
    good(send(f"{at}/status", newer({**held(grant), "end": end})))
    assert ann.get(f"/api/v1/queue/jobs/{job}")["state"] == "succeeded"
    # A user's own words are not dropped.
    for path in ("/api/v1/queue/submit", "/api/v1/admin/workers"):
        wrong = newer({"jobs": [SPEC]}) if "queue" in path else newer({"name": "w2"})
        said = problem(api.key("root", Role.ADMIN).call("POST", path, wrong), 422, "invalid")
        assert "newer: unknown field" in said


def test_a_newer_server_is_understood(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    _, token = api.workers.create("w")
    monkeypatch.setattr(http_gateway, "LEASES", 2)
    with listening(Newer(api.app)) as url, gateway([url], token) as made:
        jobs = [api.rig.submit() for _ in range(3)]
        made.new_work()
        grants = claimed(made, 3)
        fences = [grant.fence for grant in grants]
        assert {fence.job_id for fence in fences} == set(jobs)
        assert made.report(fences[0], Phase.RUNNING) is Standing.OK
        assert made.latest_checkpoint(jobs[0]) is None
        # In two requests, as a worker with very many leases renews them.
        renewal = made.renew(fences, WorkerStatus.BUSY)
        assert renewal.standings == dict.fromkeys(fences, Standing.OK)
        (ended,), _ = made.finish_and_claim([End(fences[0], Reason.SUCCEEDED, 0)], PLENTY, 0)
        assert (ended.accepted, ended.state) == (True, State.SUCCEEDED)


def test_one_job_needs_no_list_around_it(api: Api) -> None:
    ann = api.key()
    (job,) = ann.post("/api/v1/queue/submit", {**SPEC, "name": "alone"})["job_ids"]
    assert ann.get(f"/api/v1/queue/jobs/{job}")["name"] == "alone"
    ann.call("PUT", "/api/v1/queue/templates/t", {"spec": SPEC})
    assert ann.post("/api/v1/queue/submit", {"config_name": "t"})["job_ids"] == [job + 1]
    wrong = {**SPEC, "worker_labels": {"zone": "eu"}}
    said = problem(ann.call("POST", "/api/v1/queue/submit", wrong), 422, "invalid")
    assert "worker_labels: unknown field; did you mean labels?" in said


def pages(caller: Caller, path: str) -> list[list[dict[str, Any]]]:
    """Return every page of a list, each with the next one's address from the last."""
    found = []
    while path:
        answer = caller.get(path)
        found.append(answer["items"])
        path = answer["next"]
    return found


def test_lists_say_where_they_go_on(api: Api) -> None:
    ann, root = api.key(), api.key("root", Role.ADMIN)
    sweep = {"kind": "benchmark", "sweep": "lr=1 & more", "parallel": 9}
    jobs = [ann.submit(**sweep) for _ in range(5)]
    found = pages(ann, "/api/v1/queue/jobs?state=queued&count=2")
    assert [[job["job_id"] for job in page] for page in found] == [
        [jobs[4], jobs[3]],
        [jobs[2], jobs[1]],
        [jobs[0]],
    ]
    found = pages(ann, "/api/v1/queue/sweeps/lr%3D1%20&%20more/points?count=4")
    assert [len(page) for page in found] == [4, 1]
    events = pages(root, "/api/v1/admin/events?count=3&action=submitted")
    assert sum(len(page) for page in events) == 5
    assert ann.get("/api/v1/queue/templates")["next"] is None
