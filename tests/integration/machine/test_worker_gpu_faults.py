"""A GPU that breaks under a job: it is lent no more, and the job succeeds on another for free."""

from __future__ import annotations

import sys
from itertools import count
from typing import TYPE_CHECKING

import pytest
from support.nvml.fake import FakeNvml
from support.workers.worker import bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_schema.database.pool import Row
    from support.waiting import Eventually
    from support.workers.worker import Bed

# Reports XID 48 for its own GPU and fails at once; on the next GPU, only XID 31, its own fault.
FAILS = """
import os, pathlib, sys, threading
gpu, attempt = os.environ["CUDA_VISIBLE_DEVICES"], int(os.environ["FORGE_ATTEMPT"])
if attempt < 3:
    with open(sys.argv[1], "a") as state:
        state.write(f"event\\t{attempt}\\t{gpu}\\t8\\t{48 if attempt == 1 else 31}\\n")
print("attempt", attempt, "on", gpu, flush=True)
if attempt == 1:
    sys.exit(1)
while not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
"""
ONE_GPU = {"cpus": 1, "memory_mb": 256, "gpus": 1}


@pytest.fixture
def process(tmp_path: Path, database_url: str, nvml: FakeNvml) -> Iterator[Bed]:
    with bed("process", tmp_path, database_url, environment=nvml.environment) as made:
        yield made


def row(made: Bed) -> Row:
    return made.registry.workers()[0]


def gpus(made: Bed) -> list[str]:
    return [gpu["uuid"] for gpu in row(made)["gpus"]]


def test_job_goes_on_elsewhere_and_the_gpu_stays_out(
    process: Bed, nvml: FakeNvml, eventually: Eventually
) -> None:
    for uuid in ("GPU-a", "GPU-b", "GPU-c"):
        nvml.gpu(uuid)
    worker = process.worker(sample_s=0.5)
    job = process.script(FAILS, str(nvml.state), resources=ONE_GPU)
    process.says(job, "attempt 2 on")
    said = process.log(job).decode().split()
    first, second = said[3], said[7]
    assert first != second
    eventually(lambda: "xid=31" in worker.output)
    # An XID that the job may have caused itself costs neither the job nor the GPU anything.
    assert process.reasons(job) == ["gpu_fault"]
    assert set(gpus(process)) == {"GPU-a", "GPU-b", "GPU-c"} - {first}
    nvml.fail(second)
    process.says(job, "attempt 3 on")
    for folder in worker.folder.glob("jobs/*/work"):
        (folder / "go").touch()
    process.succeeds(job)
    assert process.reasons(job) == ["gpu_fault", "gpu_fault", "succeeded"]
    ends = process.jobs.attempts(job)
    assert "XID 48" in ends[0]["detail"]
    assert "no longer answers" in ends[1]["detail"]
    (third,) = {"GPU-a", "GPU-b", "GPU-c"} - {first, second}
    assert ends[2]["devices"] == [third]
    eventually(lambda: set(row(process)["condition"].get("quarantine", ())) == {first, second})
    assert gpus(process) == [third]

    assert worker.leave() == 0
    nvml.fail(second, None)
    again = process.worker(sample_s=0.5)
    assert gpus(process) == [third]
    errors = count(1)

    def out_of_order() -> bool:
        nvml.set(third, ecc=next(errors))
        return gpus(process) == []

    eventually(out_of_order)
    assert row(process)["accelerator"] == "cpu"
    assert "uncorrected ECC errors" in again.output
    process.succeeds(process.submit(sys.executable, "-c", "print('no GPU')"))
