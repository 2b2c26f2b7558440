"""Nothing is left behind: no container, process, pipe, folder or lease, whatever failed.

What the engine's end leaves is in `test_engine_killed`, a full disk in `test_worker_endings`; that
nothing is left is checked as each bed is closed.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.spec import Resources
from support.services import require
from support.workers.runners import processes_with
from support.workers.worker import Bed, bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.waiting import Eventually

STUBBORN = """
import os, signal
if os.environ["FORGE_ATTEMPT"] != "1": raise SystemExit
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
print("up", flush=True)
while True: signal.pause()
"""
# Its only writer fills the whole disk, not just the job's own share.
FILLS = """
import os
try:
    with open("big", "wb", buffering=0) as file:
        while True: file.write(os.urandom(1 << 20))
except OSError as error:
    print("x" * 100_000, error, flush=True)
    raise SystemExit(5)
"""
CHILD_EATS = """
import os
child = os.fork()
if child == 0:
    held = []
    while True: held.append(b"x" * (4 << 20))
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_killed_agents_jobs_are_gone_when_their_leases_are(both: Bed) -> None:
    token = uuid.uuid4().hex
    settings = {"lease_ttl_s": 4, "heartbeat_s": 0.5}
    dead = both.worker("dead", **settings)
    jobs = [both.script(STUBBORN, token, max_losses=1, grace_s=600) for _ in range(2)]
    for job in jobs:
        both.says(job, "up")
    assert len(processes_with(token)) >= 4
    dead.kill()
    other = both.worker("other", **settings)
    for job in jobs:
        both.succeeds(job)
        assert both.reasons(job) == ["worker_lost", "succeeded"]
    assert other.leave() == 0
    # Nobody but its own next boot can clear the machine.
    assert both.left_behind()
    again = both.worker("dead", **settings)
    assert processes_with(token) == []
    assert not list(again.folder.glob("jobs/*"))


def share(disk_mb: int) -> Resources:
    return Resources(cpus=0.5, memory_mb=128, disk_mb=disk_mb)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB and 2,000 inodes."""
    require(os.geteuid() == 0, "root, to mount a file system")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m,nr_inodes=2000", "none", place], check=True
    )
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("kind", ["process", "docker"])
def test_worker_whose_own_disk_is_full_goes_on(
    tmp_path: Path, database_url: str, small_disk: Path, kind: str, eventually: Eventually
) -> None:
    with bed(kind, tmp_path, database_url) as made:
        worker = made.worker(
            worker_dir=small_disk / "worker",
            disk_floor_mb=0,
            store_patience_s=2,
            sample_s=0.5,
            cooldown_s=0.1,
        )
        greedy = made.script(FILLS, resources=share(23))
        row = made.ended(greedy)
        assert (row["reason"], row["exit_code"]) == ("exit_code", 5)
        # A bundle that does not fit is not the job's fault.
        project = tmp_path / "project"
        project.mkdir()
        (project / "data").write_bytes(os.urandom(30 << 20))
        too_large = made.submit("true", folder=project, resources=share(20))
        assert made.ended(too_large)["reason"] == "storage_failed"
        made.succeeds(made.script("print('room again')", resources=share(5)))
        assert worker.running
        # The folder is removed once the queue has the end.
        eventually(lambda: not list(small_disk.glob("worker/jobs/*")))
        # Bytes are free, but no inodes: no job is taken that could not begin.
        with suppress(OSError):
            for number in range(2000):
                (small_disk / f"filler-{number}").touch()
        eventually(lambda: "no file can be made in" in constraint(made))
        waits = made.script("print('at last')", resources=share(5))
        for filler in small_disk.glob("filler-*"):
            filler.unlink()
        made.succeeds(waits)


def constraint(made: Bed) -> str:
    """Return why the only worker takes no jobs."""
    (row,) = made.registry.workers()
    return str(row["condition"].get("constrained", ""))


def test_child_that_runs_out_of_memory_is_told_of_and_leaves_nothing(both: Bed) -> None:
    both.worker()
    small = Resources(cpus=0.5, memory_mb=64, disk_mb=100)
    job = both.script(CHILD_EATS, resources=small)
    row = both.ended(job)
    assert row["reason"] == "oom"
    # The kernel picks the child; without control groups, a job that is a process ends as a whole,
    # and may tell of its child just before.
    ended = (row["exit_code"], b"child -9" in both.log(job))
    assert ended in {(0, True), (137, False), (137, True)}


def test_worker_that_is_stopped_while_a_job_floods_its_pipe_leaves_nothing(
    both: Bed, eventually: Eventually
) -> None:
    worker = both.worker()
    job = both.script(
        "while True: print('x' * 65536)", resources=Resources(disk_mb=4000), grace_s=1
    )
    eventually(lambda: both.job(job)["phase"] == "running")
    assert worker.leave() == 0
    assert both.left_behind() == []
