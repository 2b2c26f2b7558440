"""A runner's figures for a job's CPU time and memory, beside the job's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.workers.runners import KINDS, Bench, docker_only, make_runner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.waiting import Eventually

# Half a second of CPU time in a child that ends, half in the job itself; 150 MiB held and let go.
BURNS = """
import os, pathlib, resource, threading, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
if os.fork() == 0:
    burn(0.5)
    os._exit(0)
os.wait()
held = bytearray(b"x") * (150 << 20)
burn(0.5)
del held
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print("used", sum(u.ru_utime + u.ru_stime for u in used), flush=True)
while not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
"""


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(make_runner(request.param), tmp_path)
    yield bench
    bench.close()


def test_used_is_what_the_job_used(bench: Bench, eventually: Eventually) -> None:
    job = bench.python(BURNS)
    job.expect(b"used")
    burnt = float(job.output.split()[1])
    eventually(lambda: (use := job.handle.used()) and use.cpu_seconds >= burnt * 0.95)
    running = job.handle.used()
    assert running is not None
    # A container's starting and its shell are counted with it, and cost more on a busy machine.
    assert burnt * 0.95 <= running.cpu_seconds <= burnt * 5
    assert 1 < running.memory_mb < 100
    (job.spec.work_dir / "go").touch()
    assert job.result().code == 0
    ended = job.handle.used()
    if bench.runner.kind == "docker":
        assert ended is None
        peak = running.peak_memory_mb
    else:
        assert ended is not None
        assert ended.cpu_seconds >= burnt
        peak = ended.peak_memory_mb
    assert 150 <= peak < 200


def test_engine_tells_where_the_control_group_is_out_of_sight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    docker_only("its statistics have no peak")
    monkeypatch.setattr("forge_worker.runners.docker.usage.group_of", lambda *_: None)
    bench = Bench(make_runner("docker"), tmp_path)
    try:
        job = bench.python(BURNS)
        job.expect(b"used")
        burnt = float(job.output.split()[1])
        eventually(lambda: (use := job.handle.used()) and use.cpu_seconds >= burnt * 0.95)
        use = job.handle.used()
        assert use is not None
        assert 150 <= use.peak_memory_mb < 200
    finally:
        bench.close()
    assert job.handle.used() is None
