"""The usage of attempts as reported to the queue, by real workers on simulated GPUs."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from support.workers.http_bed import http_bed
from support.workers.worker import Bed, bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_schema.database.pool import Row
    from support.nvml.fake import FakeNvml
    from support.waiting import Eventually

MIB = 1 << 20
# Burns a second of CPU time, half of it in a child, and holds 150 MiB for a moment.
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
raise SystemExit(3)
"""


@pytest.fixture(params=["sql", "http"])
def process(
    request: pytest.FixtureRequest, tmp_path: Path, database_url: str, nvml: FakeNvml
) -> Iterator[Bed]:
    transport = partial(http_bed, ttl_s=30) if request.param == "http" else partial(bed, "process")
    with transport(tmp_path, database_url) as made:
        made.environment = nvml.environment
        yield made


def attempts(made: Bed, job_id: int) -> list[Row]:
    return made.jobs.attempts(job_id)


def samples(made: Bed, job_id: int) -> list[dict[str, Any]]:
    asked = "SELECT number, values FROM sample WHERE job_id = %s ORDER BY token, number"
    with made.database.connection() as connection:
        return list(connection.execute(asked, [job_id]).fetchall())


def told(made: Bed, job_id: int) -> list[float]:
    """Return the CPU-seconds that each attempt reports for itself."""
    return [float(said) for said in re.findall(rb"^used (\S+)$", made.log(job_id), re.MULTILINE)]


def let_go(made: Bed) -> None:
    for folder in made.workers[-1].folder.glob("jobs/*/work"):
        (folder / "go").touch()


def test_failed_attempt_tells_what_it_used_too(
    process: Bed, nvml: FakeNvml, eventually: Eventually
) -> None:
    nvml.gpu("GPU-a")
    nvml.set("GPU-a", energy=1_000_000)
    process.worker(sample_s=0.2, price_per_hour=3600)
    job = process.script(BURNS, resources={"cpus": 1, "memory_mb": 512, "gpus": 1})
    process.says(job, "used")
    nvml.set("GPU-a", energy=1_600_000, memory=900 * MIB, utilisation=80)
    eventually(lambda: any(_gpu(s).get("utilisation") == 80 for s in samples(process, job)))
    # As if the driver was reloaded: it counts from zero again.
    nvml.set("GPU-a", energy=25_000, memory=10 * MIB)
    eventually(lambda: _gpu(samples(process, job)[-1]).get("memory_mb") == 10)
    let_go(process)
    assert process.ended(job)["state"] == "dead"
    (used,) = attempts(process, job)
    (burnt,) = told(process, job)
    assert used["reason"] == "exit_code"
    assert used["energy_j"] == pytest.approx(625)
    assert used["peak_vram_mb"] == 900
    assert burnt <= used["cpu_seconds"] < burnt + 0.5
    assert 150 <= used["peak_memory_mb"] < 200
    assert used["gpu_seconds"] == pytest.approx(used["cost"])
    assert 1 < used["gpu_seconds"] <= used["held_s"] + 1
    kept = samples(process, job)
    assert [sample["number"] for sample in kept] == list(range(len(kept)))
    assert kept[-1]["values"]["cpu_seconds"] == pytest.approx(used["cpu_seconds"], abs=0.01)


def _gpu(sample: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = sample["values"]["gpus"]["GPU-a"]
    return found


def test_container_tells_what_it_used_when_it_is_preempted_and_when_its_agent_is_killed(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with bed("docker", tmp_path, database_url) as made:
        worker = made.worker(sample_s=0.2)
        job = made.script(BURNS)
        made.says(job, "used")
        (first,) = told(made, job)
        eventually(lambda: _cpu_seconds(samples(made, job)) >= first * 0.95)
        made.queue.preempt(job)
        eventually(lambda: len(told(made, job)) == 2)
        _, second = told(made, job)
        eventually(lambda: _cpu_seconds(samples(made, job)) >= second * 0.95)
        worker.kill()
        made.worker(sample_s=0.2)
        let_go(made)
        made.ended(job)
        ends = attempts(made, job)
        numbers = [sample["number"] for sample in samples(made, job)]
    # Both attempts count from 0, and the second agent continues where the first one stopped.
    restart = numbers.index(0, 1)
    assert numbers == [*range(restart), *range(len(numbers) - restart)]
    assert [end["reason"] for end in ends] == ["preempted", "exit_code"]
    for end, burnt in zip(ends, (first, second), strict=True):
        # The container's start and its shell are counted with the job.
        assert burnt * 0.95 <= end["cpu_seconds"] < burnt + 0.6
        assert 150 <= end["peak_memory_mb"] < 200
        assert (end["energy_j"], end["peak_vram_mb"], end["gpu_seconds"]) == (None, None, 0)


def _cpu_seconds(kept: list[dict[str, Any]]) -> float:
    return float(kept[-1]["values"].get("cpu_seconds", 0)) if kept else 0.0
