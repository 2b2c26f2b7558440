"""`/metrics` of a real worker, on simulated GPUs, over both transports."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import httpx
import pytest
from support.http.exposition import Exposition
from support.workers.http_bed import http_bed
from support.workers.worker import Bed, Worker, bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.nvml.fake import FakeNvml
    from support.waiting import Eventually

WAITS = """
import pathlib, threading
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


def read(worker: Worker) -> Exposition:
    port = re.search(r"metrics_served .*port=(\d+)", worker.output)
    assert port, worker.output
    return Exposition(httpx.get(f"http://127.0.0.1:{port[1]}/metrics", timeout=60).text)


def test_a_worker_tells_what_it_does(process: Bed, nvml: FakeNvml, eventually: Eventually) -> None:
    nvml.gpu("GPU-a")
    nvml.set("GPU-a", utilisation=40, power=90_000, energy=5_000, temperature=61)
    worker = process.worker(metrics_port=0, sample_s=0.2)
    resources = {"cpus": 1, "memory_mb": 64, "gpus": 1}
    job = process.script(WAITS, resources=resources, max_failures=0)
    name = partial("forge_worker_{}".format)

    def seen(what: str, **labels: str) -> float | None:
        return read(worker).value(name(what), **labels)

    eventually(lambda: seen("jobs", phase="running") == 1)
    eventually(lambda: seen("gpu_utilisation_ratio", gpu="GPU-a") == 0.4)
    said = read(worker)
    gpu = {"gpu": "GPU-a"}
    assert said.value(name("gpu_lent"), **gpu) == 1
    assert said.value(name("gpu_power_watts"), **gpu) == 90
    assert said.value(name("gpu_energy_joules_total"), **gpu) == 5
    assert said.value(name("gpu_temperature_celsius"), **gpu) == 61
    assert (said.value(name("cpus_lent")), said.value(name("cpus_there"))) == (1, 4)
    assert said.value(name("memory_lent_bytes")) == 64 << 20
    assert said.value(name("claims_total")) == 1
    states = ("draining", "constrained", "spooled_ends", "notices_unseen", "refused")
    assert [said.value(name(state)) for state in states] == [0, 0, 0, 0, 0]
    assert (said.value(name("machine_memory_ratio")) or 0) > 0
    for folder in worker.folder.glob("jobs/*/work"):
        (folder / "go").touch()
    assert process.ended(job)["reason"] == "exit_code"
    eventually(lambda: seen("attempts_ended_total", reason="exit_code", late="no") == 1)
    second = process.script("print('hello')", resources=resources)
    process.succeeds(second)
    eventually(lambda: seen("attempts_ended_total", reason="succeeded", late="no") == 1)
    # Its end is counted a moment before it is gone.
    eventually(lambda: read(worker).sum(name("jobs")) == 0)
    said = read(worker)
    assert said.value(name("claims_total")) == 2
    assert (said.value(name("uploaded_bytes_total")) or 0) > 0
    assert (said.value(name("renewal_seconds_count")) or 0) > 0
    assert (said.value(name("claim_seconds_count")) or 0) >= 2
    assert said.value(name("gpu_lent"), **gpu) == 0
    told = str(said.samples)
    assert f"'{job}'" not in told
    assert process.token in told


def test_a_port_that_is_taken_is_an_error_of_one_line(tmp_path: Path, database_url: str) -> None:
    with bed("process", tmp_path, database_url) as made:
        first = made.worker("one", metrics_port=0)
        port = re.search(r"metrics_served .*port=(\d+)", first.output)
        assert port
        second = made.begin("two", metrics_port=port[1])
        assert second.process.wait(120) == 1
        assert "Address already in use" in second.output.splitlines()[-1]
