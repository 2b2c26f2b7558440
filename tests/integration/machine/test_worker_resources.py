"""A machine past its limits takes no jobs, says so, and takes them again; real workers do it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil
from forge_schema.model.states import Role, WorkerStatus
from forge_schema.read.audit import Audit
from forge_worker import linux
from forge_worker.queue.http.gateway import HttpGateway
from support.http.http_worker import machine, session
from support.services import require
from support.workers.worker import Bed, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http.api import Api
    from support.waiting import Eventually

WAITS = """
import pathlib, threading
print("up", flush=True)
while not pathlib.Path("go").exists(): threading.Event().wait(0.05)
"""
HOLDS = """
import mmap, sys
size = int(sys.argv[1]) << 20
held = mmap.mmap(-1, size)
for page in range(0, size, 4096): held[page] = 1
sys.stdin.read()
"""
# The tests that run beside this one take and free less than that.
MARGIN_MB, HELD_MB = 1_500, 3_000


@contextmanager
def memory_held() -> Iterator[None]:
    """Hold memory of the machine."""
    command = [sys.executable, "-c", HOLDS, str(HELD_MB)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as holder:
        try:
            yield
        finally:
            holder.kill()


def seen(made: Bed) -> dict[str, Any]:
    return made.registry.workers()[0]


def let_go(worker: Worker) -> None:
    for folder in worker.folder.glob("jobs/*/work"):
        (folder / "go").touch()


def test_constrained_worker_goes_on_takes_no_more_and_comes_back(
    process: Bed, eventually: Eventually
) -> None:
    free_mb = psutil.virtual_memory().available >> 20
    require(free_mb > MARGIN_MB + HELD_MB, "memory that is free")
    reserve_mb = free_mb - MARGIN_MB
    worker = process.worker(memory_reserve_mb=reserve_mb, cooldown_s=1, sample_s=0.2)
    running = process.script(WAITS)
    process.says(running, "up")
    eventually(lambda: seen(process)["condition"]["memory_free_mb"] > reserve_mb)
    with memory_held():
        eventually(lambda: seen(process)["status"] == "constrained")
        assert "of memory free" in seen(process)["condition"]["constrained"]
        waiting = process.script("print('at last')")
        let_go(worker)
        # Even the place of a job that has ended is not given to another.
        process.succeeds(running)
        heard = seen(process)["last_seen_at"]
        eventually(lambda: seen(process)["last_seen_at"] > heard)
        assert process.job(waiting)["state"] == "ready"
    process.succeeds(waiting)
    assert seen(process)["condition"]["constrained"] == ""
    assert "worker_constrained" in worker.output
    assert "worker_unconstrained" in worker.output
    events = Audit(process.database).events(worker_id=seen(process)["id"])
    moves = [event["detail"]["to"] for event in events if event["action"] == "status_changed"]
    assert [m for m in moves if m != "busy"][-2:] in (
        ["constrained", "idle"],
        ["idle", "constrained"],
    )


def test_condition_goes_over_http_and_is_shown(api: Api) -> None:
    token = api.workers.create("w")[1]
    condition = {"cpu_percent": 99.0, "constrained": "the CPUs are used to 99 %"}
    with session([api.url], token) as opened:
        gateway = HttpGateway(opened)
        gateway.register(machine())
        gateway.renew([], WorkerStatus.CONSTRAINED, condition)
        reader = api.key("bob", Role.VIEWER)
        (shown,) = reader.get("/api/v1/workers")["items"]
        assert (shown["status"], shown["condition"]) == ("constrained", condition)
        # A renewal that says nothing of the condition leaves it as it was.
        gateway.renew([], WorkerStatus.IDLE)
        (shown,) = reader.get("/api/v1/workers")["items"]
        assert (shown["status"], shown["condition"]) == ("idle", condition)


def test_what_is_lent_is_never_more_than_there_is(process: Bed) -> None:
    total_mb = int(min(psutil.virtual_memory().total, linux.memory_limit())) >> 20
    worker = process.worker(memory_mb=total_mb * 2, disk_mb=1 << 40, tags="spare")
    row = seen(process)
    assert row["memory_mb"] == total_mb
    assert row["disk_mb"] < psutil.disk_usage("/").total >> 20
    assert row["labels"]["spare"] == "true"
    assert worker.output.count("resources_clamped") == 2
