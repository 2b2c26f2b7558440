"""A worker's view of its machine, on simulated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml
from forge_worker.machine.admission import Observer
from forge_worker.machine.gpu_health import GpuLook, GpuMeter

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from support.nvml.fake import FakeNvml

MIB = 1 << 20


def test_gpu_says_what_it_can(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.gpu("GPU-a")
    nvml.gpu("GPU-old")
    nvml.set("GPU-a", utilisation=40, memory=300 * MIB, power=120_500, temperature=61)
    nvml.set("GPU-a", energy=2_500, ecc=1)
    nvml.set("GPU-old", energy=None, ecc=None, power=None, utilisation=None)
    nvml.slice("MIG-1", "GPU-a", "NVIDIA A100 1g.5gb", 4864)
    nvml.set("MIG-1", memory=7 * MIB)
    with nvml.here(monkeypatch):
        meter = GpuMeter()
        looks = meter.look(["GPU-a", "GPU-old", "MIG-1", "GPU-never"])
        assert looks == {
            "GPU-a": GpuLook(40, 300, 120.5, 61, 2.5, 1),
            "GPU-old": GpuLook(memory_mb=0, temperature_c=30),
            "MIG-1": GpuLook(memory_mb=7),
        }
        nvml.fail("GPU-a")
        nvml.fail("GPU-old", pynvml.NVML_ERROR_UNKNOWN)
        lost = {"GPU-a": GpuLook(lost=True), "GPU-old": GpuLook()}
        assert meter.look(["GPU-a", "GPU-old"]) == lost
        meter.close()
        nvml.fail("GPU-a", None)
        assert meter.look(["GPU-a"])["GPU-a"].memory_mb == 300
        meter.close()


def test_machine_without_gpus_is_observed(tmp_path: Path) -> None:
    observer = Observer(tmp_path)
    first = observer.look(["GPU-a"])
    sum(range(3_000_000))
    second = observer.look()
    assert first.gpus == {}
    assert 0 < second.cpu_percent <= 100
    assert 0 < second.memory_percent < 100
    assert second.disk_free_mb > 0
    assert set(second.reported()) == {
        "cpu_percent",
        "memory_percent",
        "memory_free_mb",
        "disk_free_mb",
        "gpus",
    }
