"""Real workers on simulated GPUs: which job has which GPU, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.spec import Resources
from support.workers.worker import Bed, bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.nvml.fake import FakeNvml
    from support.waiting import Eventually

# Writes down what it was given, then stays until it is let go, or for a moment.
HOLDS = """
import os, pathlib, sys, threading
name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
def say(word):
    line = f"{name} {word} {os.environ['CUDA_VISIBLE_DEVICES']}\\n"
    with open(folder / "ledger", "a") as ledger:
        ledger.write(line)
say("began")
(folder / f"{name}.pid").write_text(str(os.getpid()))
if "stay" in sys.argv:
    while not (folder / f"{name}.go").exists():
        threading.Event().wait(0.05)
threading.Event().wait(0.3)
print(os.environ["FORGE_DEVICE"], os.environ["FORGE_BATCH_SIZE_HINT"], flush=True)
say("ended")
"""


@dataclass
class Floor:
    """A bed whose workers see the fake GPUs, and the ledger that all of its jobs write."""

    bed: Bed
    folder: Path

    def submit(self, name: str, gpus: int, *words: str, **needs: Any) -> int:  # noqa: ANN401  fields of all types
        needed = Resources(cpus=0.1, memory_mb=64, disk_mb=100, gpus=gpus, **needs)
        return self.bed.script(HOLDS, name, str(self.folder), *words, resources=needed)

    def lines(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return the ledger: a job, `began` or `ended`, and its GPUs."""
        file = self.folder / "ledger"
        text = file.read_text() if file.exists() else ""
        found = [line.split(" ") for line in text.splitlines()]
        return [(job, word, tuple(filter(None, gpus.split(",")))) for job, word, gpus in found]

    def gpus_of(self, name: str) -> tuple[str, ...]:
        """Return the GPUs that a job was given; none if it has not begun."""
        return next((gpus for job, _, gpus in self.lines() if job == name), ())

    def let_go(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def never_two_on_one(self) -> None:
        """Check by the ledger that no GPU had a second job before its first had ended."""
        held: dict[str, str] = {}
        for job, word, gpus in self.lines():
            for gpu in gpus:
                assert held.get(gpu, job) == job, self.lines()
                if word == "began":
                    held[gpu] = job
                else:
                    del held[gpu]


@pytest.fixture
def floor(tmp_path: Path, database_url: str, nvml: FakeNvml) -> Iterator[Floor]:
    folder = tmp_path / "floor"
    folder.mkdir()
    shared = {"FORGE_LOCK_DIR": str(tmp_path / "locks"), **nvml.environment}
    with bed("process", tmp_path, database_url, environment=shared) as made:
        yield Floor(made, folder)


def test_four_gpus_and_jobs_for_one_one_two_four_one_one(floor: Floor, nvml: FakeNvml) -> None:
    uuids = [nvml.gpu(f"GPU-{n}", "NVIDIA H100", 81_559) for n in range(4)]
    made = floor.bed
    wanted = [1, 1, 2, 4, 1, 1]
    jobs = [floor.submit(f"job{n}", gpus) for n, gpus in enumerate(wanted)]
    plain = floor.submit("plain", 0)
    made.worker(gpus="all")
    for job in [*jobs, plain]:
        made.succeeds(job)
    floor.never_two_on_one()
    assert [len(set(floor.gpus_of(f"job{n}"))) for n in range(6)] == wanted
    assert set(floor.gpus_of("job3")) == set(uuids)
    assert floor.gpus_of("plain") == ()
    assert made.log(jobs[3]) == b"cuda 256\n"
    assert made.log(plain).startswith(b"cpu ")
    (row,) = made.registry.workers()
    assert row["accelerator"] == "cuda"
    assert [gpu["uuid"] for gpu in row["gpus"]] == uuids
    assert (row["gpus"][0]["driver"], row["gpus"][0]["capability"]) == ("550.54.15", "8.0")
    devices = [end["devices"] for job in jobs for end in made.jobs.attempts(job)]
    assert [set(told) for told in devices] == [set(floor.gpus_of(f"job{n}")) for n in range(6)]


def test_slices_other_models_and_a_stranger(floor: Floor, nvml: FakeNvml) -> None:
    nvml.gpu("GPU-a", "NVIDIA T4", 15_360)
    nvml.gpu("GPU-b", "NVIDIA A100", 40_960)
    for n in (1, 2):
        nvml.slice(f"MIG-{n}", "GPU-b", "NVIDIA A100 MIG 1g.5gb", 4864)
    nvml.stranger("GPU-a")
    made = floor.bed
    made.worker(gpus="0,GPU-b")
    on_t4 = floor.submit("t4", 1, gpu_model="t4")
    large = floor.submit("large", 1, vram_mb=10_000)
    both = floor.submit("both", 2, gpu_model="a100 mig*")
    one = floor.submit("one", 1, gpu_model="*1g.5gb")
    last = floor.submit("last", 0)
    for job in (both, one, last):
        made.succeeds(job)
    assert set(floor.gpus_of("both")) == {"MIG-1", "MIG-2"}
    assert floor.gpus_of("one")[0] in {"MIG-1", "MIG-2"}
    # All later jobs have run, and the stranger still has the GPU that these two need.
    assert [made.job(job)["state"] for job in (on_t4, large)] == ["ready", "ready"]
    nvml.gone("GPU-a")
    for job, name in ((on_t4, "t4"), (large, "large")):
        made.succeeds(job)
        assert floor.gpus_of(name) == ("GPU-a",)
    floor.never_two_on_one()


def test_two_workers_share_and_what_outlives_its_agent_keeps_its_gpu(
    floor: Floor, nvml: FakeNvml, eventually: Eventually
) -> None:
    for uuid in ("GPU-a", "GPU-b"):
        nvml.gpu(uuid)
    made = floor.bed
    one = made.worker("one", gpus="GPU-a")
    stays = floor.submit("stays", 1, "stay")
    eventually(lambda: floor.gpus_of("stays"))
    made.worker("two", gpus="all")
    beside = [floor.submit(f"beside{n}", 1) for n in range(3)]
    for job in beside:
        made.succeeds(job)
    assert {floor.gpus_of(f"beside{n}") for n in range(3)} == {("GPU-b",)}
    # The agent is gone, and with it the lock; its job keeps computing.
    nvml.process("GPU-a", int((floor.folder / "stays.pid").read_text()), 1 << 20)
    one.kill()
    waits, plain = floor.submit("waits", 2), floor.submit("plain", 0)
    made.succeeds(plain)
    assert made.job(waits)["state"] == "ready"
    # Its next boot deals with what it left, and then the GPU is free for any job.
    made.worker("one", gpus="GPU-a")
    floor.let_go("stays")
    made.ended(stays)
    nvml.gone("GPU-a", int((floor.folder / "stays.pid").read_text()))
    made.succeeds(waits)
    assert set(floor.gpus_of("waits")) == {"GPU-a", "GPU-b"}
    assert sorted(path.name for path in (made.root / "locks").iterdir()) == ["GPU-a", "GPU-b"]


def test_without_a_driver_a_worker_has_no_gpu_and_says_so_when_one_is_named(
    floor: Floor, nvml: FakeNvml, eventually: Eventually
) -> None:
    made = floor.bed
    nvml.state.unlink()
    refused = made.begin("refused", gpus="GPU-a")
    eventually(lambda: not refused.running)
    assert refused.process.returncode == 1
    assert "--gpus names 'GPU-a', which is not on this machine" in refused.output
    assert "no GPU is found on this machine" in refused.output
    made.worker("plain")
    job = floor.submit("plain", 0)
    made.succeeds(job)
    assert made.log(job).startswith(b"cpu ")
    rows = [row for row in made.registry.workers() if row["gpus"]]
    assert rows == []
