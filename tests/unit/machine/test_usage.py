"""Usage from looks: counters that begin anew, GPUs that know only their power, and what is None."""

from __future__ import annotations

import json

import pytest
from forge_schema.model.lease import Usage
from forge_worker.job_io.usage import UsageMeter
from forge_worker.machine.gpu_health import GpuLook
from forge_worker.runners.process.descendants import JobUse


def test_energy_is_the_counters_difference_also_when_that_begins_anew() -> None:
    meter = UsageMeter(["a"])
    for now, joules in enumerate([1000.0, 1600.0, 50.0, 70.0]):
        meter.take({"a": GpuLook(energy_j=joules, power_w=9999)}, None, now)
    assert meter.usage(1, 0).energy_j == pytest.approx(600 + 50 + 20)


def test_energy_without_a_counter_is_power_over_time() -> None:
    meter = UsageMeter(["a"])
    for now, watts in [(0.0, 100.0), (10.0, 300.0), (12.0, 300.0)]:
        meter.take({"a": GpuLook(power_w=watts)}, None, now)
    assert meter.usage(1, 0).energy_j == pytest.approx(2000 + 600)


def test_a_look_that_failed_leaves_no_hole() -> None:
    meter = UsageMeter(["a"])
    meter.take({"a": GpuLook(energy_j=10)}, None, 0)
    meter.take({"a": GpuLook(lost=True)}, None, 1)
    meter.take({}, None, 2)
    meter.take({"a": GpuLook(energy_j=50)}, None, 3)
    assert meter.usage(1, 0).energy_j == pytest.approx(40)


def test_a_figure_that_some_gpus_lack_is_unknown() -> None:
    meter = UsageMeter(["a", "b"])
    meter.take({"a": GpuLook(energy_j=1, memory_mb=5), "b": GpuLook(memory_mb=9)}, None, 0)
    assert meter.usage(10, 0.5) == Usage(gpu_seconds=20, cost=5, peak_vram_mb=9)
    assert UsageMeter([]).usage(10, 0) == Usage()


def test_peaks_stay_and_a_later_agent_goes_on() -> None:
    meter = UsageMeter(["a"])
    meter.take({"a": GpuLook(energy_j=0, memory_mb=700)}, JobUse(3.0, 90, 120.4), 0)
    meter.take({"a": GpuLook(energy_j=30, memory_mb=20)}, JobUse(4.5, 10, 120.4), 1)
    later = UsageMeter(["a"])
    later.go_on(json.loads(json.dumps(meter.kept())))
    later.take({"a": GpuLook(energy_j=45, memory_mb=1)}, None, 99)
    used = Usage(2, 45, 1, 4.5, 120, 700)
    assert later.usage(2, 0.5) == used
    assert meter.values() == {
        "gpus": {"a": {"energy_j": 30, "memory_mb": 20}},
        "cpu_seconds": 4.5,
        "memory_mb": 10,
    }
    # The last look is at a job that is gone.
    meter.take({}, JobUse(5.0, 0.0, 120.4), 2)
    assert "memory_mb" not in meter.values()
