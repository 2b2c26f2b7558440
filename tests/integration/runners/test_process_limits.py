"""The kernel's limits on a job in process mode, and that its neighbours notice nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from forge_worker.runners.process import runner as process
from forge_worker.runners.process.confinement import (
    PIDS,
    confine,
    confinement_of,
    enter,
    parents,
)
from forge_worker.runners.process.runner import ProcessRunner
from support.services import require
from support.workers.runners import Bench, processes_with

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.waiting import Eventually

# Prints its limits, and works until it has been throttled.
BUSY = """
import os, pathlib
own = dict(line.strip().split(":", 2)[1:] for line in open("/proc/self/cgroup"))
group = lambda kind: pathlib.Path("/sys/fs/cgroup", kind, own[kind][1:])
print((group("cpu") / "cpu.cfs_quota_us").read_text(), flush=True)
print((group("pids") / "pids.max").read_text(), flush=True)
while "nr_throttled 0" in (group("cpu") / "cpu.stat").read_text(): pass
"""
HOG = """
import mmap
held = mmap.mmap(-1, 1 << 30)
for page in range(0, 1 << 30, 4096): held[page] = 1
"""
# Its child takes too much memory, and it ignores that.
CARELESS = f"""
import subprocess, sys
subprocess.call([sys.executable, "-c", {HOG!r}])
"""
WAITS = """
import pathlib, threading
print("up", flush=True)
while not pathlib.Path("go").exists(): threading.Event().wait(0.05)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(ProcessRunner(), tmp_path)
    yield bench
    bench.close()


def require_groups() -> None:
    require(set(parents()) >= {"cpu", "memory", "pids"}, "control groups that can be written")


def test_job_gets_no_more_cpu_and_processes_than_it_was_lent(
    bench: Bench, eventually: Eventually
) -> None:
    require_groups()
    # So little that it is throttled on a busy machine too.
    job = bench.python(BUSY, cpus=0.05)
    assert job.result().code == 0
    assert job.output.split() == [b"5000", str(PIDS).encode()]
    # The shim removes them once it has told of the end.
    eventually(lambda: not confinement_of(job.spec.name))


@pytest.mark.parametrize("script", [HOG, CARELESS], ids=["itself", "its child"])
def test_job_over_its_memory_ends_as_such_and_its_neighbour_does_not(
    bench: Bench, eventually: Eventually, script: str
) -> None:
    require_groups()
    neighbour = bench.python(WAITS)
    neighbour.expect(b"up")
    job = bench.python(script, memory_mb=64)
    assert job.result().oom_killed
    used = job.handle.used()
    # The kernel held it to its limit.
    assert used is not None
    assert used.peak_memory_mb < 80
    (neighbour.spec.work_dir / "go").touch()
    assert neighbour.result().code == 0
    eventually(lambda: not any(map(confinement_of, (job.spec.name, neighbour.spec.name))))


def test_kernel_says_that_it_kills_for_memory(tmp_path: Path) -> None:
    require_groups()
    group = confine(f"forge-test-{tmp_path.name}", parents(), cpus=1, memory_bytes=32 << 20)
    try:
        event = group.oom_event()
        require(event, "control groups of version 1")
        assert event is not None
        hog, join = [sys.executable, "-c", HOG], lambda: enter(group.entrances)
        killed = subprocess.run(hog, preexec_fn=join, check=False)
        assert killed.returncode == -9
        assert os.eventfd_read(event) == group.oom_kills() == 1
        os.close(event)
    finally:
        group.end()


def test_group_of_a_job_whose_shim_was_killed_is_removed(bench: Bench) -> None:
    require_groups()
    # Processes that left the job's session are found by their control group.
    job = bench.python(f"import os; os.fork() or os.setsid()\n{WAITS}")
    job.expect(b"up\nup\n")
    assert confinement_of(job.spec.name)
    (pid,) = processes_with(job.spec.name)
    shim = psutil.Process(pid)
    inside = shim.children(recursive=True)
    shim.kill()
    assert job.result().code is None
    assert not confinement_of(job.spec.name)
    _, alive = psutil.wait_procs(inside, 10)
    assert alive == []


def test_without_groups_jobs_have_cpus_of_their_own_and_are_watched(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "parents", dict)
    cpus = sorted(os.sched_getaffinity(0))[:2]
    script = f"import os; print(sorted(os.sched_getaffinity(0)), flush=True)\n{WAITS}"
    jobs = [bench.python(script, cpus=1) for _ in cpus]
    for job, cpu in zip(jobs, cpus, strict=True):
        job.expect(f"[{cpu}]\nup".encode())
