"""A job that is killed together with its agent is lost, and has not failed."""

from __future__ import annotations

import json
import os
import signal
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from forge_worker.runners.docker.pipe_keeper import GONE
from forge_worker.runners.process.door import ALONE_S, EXIT
from support.workers.runners import processes_with
from support.workers.worker import Bed, Worker, keepers_of

if TYPE_CHECKING:
    from pathlib import Path

    from support.waiting import Eventually

WAITS = """
import os, signal, sys
if os.environ["FORGE_ATTEMPT"] != "1": sys.exit()
if sys.argv[2:] and os.fork() == 0: os.setsid()
print("up", flush=True)
while True: signal.pause()
"""
LASTS: dict[str, Any] = {"lease_ttl_s": 60}


def running(made: Bed, *words: str, **fields: int) -> tuple[int, list[int]]:
    """Start a job; return its number once it runs, and its processes."""
    mark = uuid.uuid4().hex
    job = made.script(WAITS, mark, *words, **fields)
    made.says(job, "up")
    return job, processes_with(mark)


def killed(pids: list[int], eventually: Eventually) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: not any(map(alive, pids)))


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def folder_of(worker: Worker, job: int) -> Path:
    (folder,) = worker.folder.glob(f"jobs/{job}-*")
    return folder


def noted(folder: Path, made: Bed) -> bool:
    """Tell whether the end of the job is known without an agent."""
    if made.kind == "process":
        return ALONE_S in (folder / EXIT).read_text()
    return (folder / GONE).exists()


def told(made: Bed, job: int) -> list[str]:
    events = made.jobs.events(job)
    return [one["detail"]["phase"] for one in events if one["action"] == "agent replaced"]


@pytest.mark.parametrize("first", ["agent", "job"])
def test_job_that_is_killed_together_with_its_agent_is_lost(
    both: Bed, eventually: Eventually, first: str
) -> None:
    worker = both.worker(**LASTS)
    job, found = running(both, max_failures=0, max_losses=1)
    if first == "agent":
        worker.kill()
        killed(found, eventually)
    else:
        # It does not hear of it.
        worker.freeze()
        killed(found, eventually)
        worker.kill()
    if both.kind == "process":
        eventually(lambda: noted(folder_of(worker, job), both))
    both.worker(**LASTS)
    both.succeeds(job)
    attempts = both.jobs.attempts(job)
    assert [one["reason"] for one in attempts] == ["worker_lost", "succeeded"]
    assert "killed together" in attempts[0]["detail"]
    assert told(both, job) == ["finishing"]


def test_job_that_is_killed_alone_has_failed(both: Bed, eventually: Eventually) -> None:
    both.worker(**LASTS)
    job, found = running(both, max_failures=0)
    killed(found, eventually)
    assert both.ended(job)["exit_code"] == 128 + signal.SIGKILL


def test_job_that_is_killed_while_its_worker_has_no_agent_has_failed(
    both: Bed, eventually: Eventually
) -> None:
    worker = both.worker(**LASTS)
    job, found = running(both, max_failures=0)
    worker.kill()
    folder = folder_of(worker, job)
    if both.kind == "docker":
        eventually((folder / GONE).exists)
    killed(found, eventually)
    # A minute went by in between.
    if both.kind == "process":
        eventually(lambda: noted(folder, both))
        kept = json.loads((folder / EXIT).read_text())
        (folder / EXIT).write_text(json.dumps({**kept, ALONE_S: kept[ALONE_S] + 60}))
    else:
        gone = float((folder / GONE).read_text())
        (folder / GONE).write_text(str(gone - 60))
    both.worker(**LASTS)
    assert both.ended(job)["exit_code"] == 128 + signal.SIGKILL


def test_job_that_is_killed_with_all_that_watches_it_is_lost(
    both: Bed, eventually: Eventually
) -> None:
    worker = both.worker(**LASTS)
    job, found = running(both, "and a daemon", max_failures=0, max_losses=1)
    if both.kind == "docker":
        watching, remains = [*keepers_of(worker), *found], []
    else:
        # The main process goes with its shim, and the daemon below it remains.
        parents = {pid: psutil.Process(pid).ppid() for pid in found}
        watching = [shim for shim in parents.values() if shim not in found]
        remains = [pid for pid, parent in parents.items() if parent in found]
        assert len(remains) == 1
    assert watching
    worker.kill()
    killed(watching, eventually)
    both.worker(**LASTS)
    eventually(lambda: not any(map(alive, remains)))
    both.succeeds(job)
    assert both.reasons(job) == ["worker_lost", "succeeded"]
