"""What admins do with workers that have nothing but URL and token: real workers, a real server."""

from __future__ import annotations

import signal
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from forge_schema.access.api_keys import Keys
from forge_schema.model.states import Role, Target
from forge_schema.sweeper.tick import Tick, Windows
from support.http.api import bearer, good, problem
from support.workers.asked import asked
from support.workers.http_bed import http_bed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.waiting import Eventually
    from support.workers.http_bed import HttpBed

# Runs until the test lets it go.
WAITS = """
import pathlib, threading
print("up", flush=True)
while not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
print("end", flush=True)
"""
ROOM = {"cpus": 0.5, "memory_mb": 256, "disk_mb": 500}


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> Iterator[HttpBed]:
    with http_bed(tmp_path, database_url, **getattr(request, "param", {})) as bed:
        yield bed


@pytest.fixture
def admin(made: HttpBed) -> Iterator[Admin]:
    key = Keys(made.database, actor="user:root").create("root", Role.ADMIN)[1]
    with httpx.Client(base_url=made.servers[0].url, headers=bearer(key), timeout=60) as http:
        yield Admin(made, http)


class Admin:
    """An admin with a key, and nothing else."""

    def __init__(self, made: HttpBed, http: httpx.Client) -> None:
        self.made, self.http = made, http

    def call(self, method: str, path: str, body: Any = None) -> Any:  # noqa: ANN401  JSON
        return good(self.http.request(method, path, json=body))

    def make(self, name: str, **fields: Any) -> int:  # noqa: ANN401  fields of all types
        """Make a worker over HTTP, with its token where the bed finds it."""
        made = self.call(
            "POST", "/api/v1/admin/workers", {"name": f"{name}-{self.made.token}", **fields}
        )
        self.made.ids[name], self.made.tokens[name] = made["id"], made["token"]
        worker_id: int = made["id"]
        return worker_id

    def submit(self, *command: str, **fields: Any) -> int:  # noqa: ANN401  as above
        spec = {"name": "j", "command": [*command], "resources": ROOM, "backoff_s": 0,
                "max_failures": 0, "max_losses": 0, "grace_s": 5, **fields}  # fmt: skip
        job: int = self.call("POST", "/api/v1/queue/submit", {"jobs": [spec]})["job_ids"][0]
        return job

    def waits(self, **fields: Any) -> int:  # noqa: ANN401  as above
        """Submit a job that runs until `let_go`."""
        return self.submit(self.made.python, "-c", WAITS, **fields)

    def worker(self, name: str) -> dict[str, Any]:
        """Return how the worker is shown."""
        shown: dict[str, Any] = self.call("GET", f"/api/v1/workers/{self.made.ids[name]}")
        return shown

    def status(self, name: str) -> str:
        status: str = self.worker(name)["status"]
        return status

    def is_draining(self, name: str) -> bool:
        return self.status(name) == "draining"


def let_go(made: HttpBed, name: str = "one") -> None:
    for folder in (made.root / name).glob("jobs/*/work"):
        (folder / "go").touch()


def test_drained_worker_ends_its_job_and_takes_no_other(
    made: HttpBed, admin: Admin, eventually: Eventually
) -> None:
    admin.make("one")
    admin.make("spot", kind="ephemeral")
    stays, spot = made.worker("one", max_jobs=1), made.worker("spot", max_jobs=1)
    jobs = [admin.waits() for _ in range(2)]
    for job in jobs:
        made.says(job, "up")
    for name in ("one", "spot"):
        admin.call("POST", f"/api/v1/admin/workers/{made.ids[name]}/drain", {})
        eventually(partial(admin.is_draining, name))
    waiting = admin.submit(made.python, "-c", "print('later')")
    for name in ("one", "spot"):
        let_go(made, name)
    for job in jobs:
        made.succeeds(job)
    # The ephemeral one leaves; the other stays and takes nothing.
    assert spot.process.wait(120) == 0
    eventually(lambda: admin.status("spot") == "offline")
    beats = admin.worker("one")["last_seen_at"]
    eventually(lambda: admin.worker("one")["last_seen_at"] > beats)
    assert (stays.running, admin.status("one")) == (True, "draining")
    assert made.job(waiting)["state"] == "ready"
    admin.call("POST", f"/api/v1/admin/workers/{made.ids['one']}/drain", {"undo": True})
    made.succeeds(waiting)


def test_a_replaced_token_is_refused_at_once_and_the_new_one_works(
    made: HttpBed, admin: Admin, tmp_path: Path, eventually: Eventually
) -> None:
    admin.make("one")
    file = tmp_path / "token"
    file.write_text(made.tokens["one"])
    worker = made.worker("one", token="", token_file=file)
    job = admin.waits()
    made.says(job, "up")
    new = admin.call("POST", f"/api/v1/admin/workers/{made.ids['one']}/token", {})["token"]
    old = {"X-Worker-Token": made.tokens["one"]}
    problem(admin.http.get("/api/v1/workers/stream", headers=old), 401, "unauthenticated")
    eventually(lambda: "refuses this worker's token" in worker.output)
    shown = (
        "refused by the queue, and tries again every few minutes: the server refuses this worker"
    )
    eventually(lambda: shown in asked(made, "--status").stdout)
    file.write_text(new)
    let_go(made)
    made.succeeds(job)
    eventually(lambda: "queue_accepts" in worker.output)
    assert (worker.output.count("queue_refuses"), worker.output.count("step_failed")) == (1, 0)
    eventually(lambda: "refused by" not in asked(made, "--status").stdout)
    assert made.reasons(job) == ["succeeded"]
    for token in (made.tokens["one"], new):
        assert token not in worker.output
    events = admin.call("GET", f"/api/v1/admin/events?worker_id={made.ids['one']}")["items"]
    assert {"worker_created", "registered", "token_rotated"} <= {one["action"] for one in events}


def test_worker_is_deleted_only_when_it_is_offline(
    made: HttpBed, admin: Admin, eventually: Eventually
) -> None:
    worker_id = admin.make("one")
    worker = made.worker("one")
    path = f"/api/v1/admin/workers/{worker_id}"
    eventually(lambda: admin.status("one") == "idle")
    problem(admin.http.delete(path), 409, "worker_not_offline")
    assert worker.leave() == 0
    eventually(lambda: admin.status("one") == "offline")
    admin.call("DELETE", path)
    problem(admin.http.get(f"/api/v1/workers/{worker_id}"), 404, "worker_not_found")
    again = made.begin("one")
    assert again.process.wait(120) == 5
    assert again.output.count("refuses this worker's token") == 1
    assert "Traceback" not in again.output


def test_ephemeral_worker_leaves_after_one_job_and_is_reaped(
    made: HttpBed, admin: Admin, eventually: Eventually
) -> None:
    admin.make("spot", kind="ephemeral")
    # Its own setting does not count: an admin has made it ephemeral.
    spot = made.worker("spot", ephemeral="False")
    first, second = (admin.submit(made.python, "-c", "print('x')") for _ in range(2))
    made.succeeds(first)
    assert spot.process.wait(120) == 0
    assert made.job(second)["state"] == "ready"
    eventually(lambda: admin.status("spot") == "offline")
    windows = Windows(reap_ephemeral=timedelta(seconds=1))
    tick = Tick(made.queue, windows=windows)
    eventually(tick.reap)
    problem(admin.http.get(f"/api/v1/workers/{made.ids['spot']}"), 404, "worker_not_found")


def test_labels_are_matched_by_glob_from_submit_to_claim(made: HttpBed, admin: Admin) -> None:
    admin.make("one", labels={"gpu": "A100-80GB"})
    # A worker cannot change what an admin has set.
    made.worker("one", labels="gpu=H100,zone=eu-1")
    fitting = ({"gpu": "a100*"}, {"zone": "eu-?"}, {"gpu": "*80gb", "zone": "eu-1"})
    fits = [admin.submit("true", labels=labels) for labels in fitting]
    wrong = ({"gpu": "h100"}, {"zone": "us*"}, {"gpu": "a100"})
    others = [admin.submit("true", labels=labels) for labels in wrong]
    for job in fits:
        made.succeeds(job)
    assert [made.job(job)["state"] for job in others] == ["ready"] * 3
    assert admin.worker("one")["labels"]["gpu"] == "A100-80GB"


def test_targets_reach_the_workers_that_they_name(made: HttpBed, admin: Admin) -> None:
    admin.make("one")
    admin.make("mine")
    made.worker("one")
    made.worker("mine", local="True")
    jobs = {target: admin.submit("true", target=target.value) for target in Target}
    for job in jobs.values():
        made.succeeds(job)
    names = {target: made.jobs.attempts(job)[0]["worker"] for target, job in jobs.items()}
    assert names[Target.WORKER] == f"one-{made.token}"
    assert names[Target.LOCAL] == f"mine-{made.token}"


# By the stream: the next renewal and the next poll are minutes away.
@pytest.mark.parametrize("made", [{"ttl_s": 600, "heartbeat_s": 300}], indirect=True)
def test_cancel_and_preempt_reach_a_worker_over_http_at_once(
    made: HttpBed, admin: Admin, eventually: Eventually
) -> None:
    admin.make("one")
    worker = made.worker("one", poll_s=300)
    job = admin.waits()
    made.says(job, "up")
    admin.call("POST", f"/api/v1/queue/jobs/{job}/cancel", {})
    assert made.ended(job)["state"] == "cancelled"
    again = admin.waits()
    made.says(again, "up")
    admin.call("POST", f"/api/v1/queue/jobs/{again}/preempt", {})
    eventually(lambda: made.reasons(again) == ["preempted"])
    made.says(again, "up\nup")
    let_go(made)
    made.succeeds(again)
    assert worker.running


def test_worker_that_is_told_to_stop_gives_its_job_back(made: HttpBed, admin: Admin) -> None:
    admin.make("one")
    worker = made.worker("one")
    job = admin.waits()
    made.says(job, "up")
    assert worker.leave(signal.SIGTERM) == 0
    assert made.reasons(job) == ["preempted"]
    assert (made.job(job)["state"], admin.status("one")) == ("ready", "offline")
