"""The tests' own NVML, through the real pynvml: what it serves is what was said of the GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pynvml
import pytest

if TYPE_CHECKING:
    from support.nvml.fake import FakeNvml

MIB = 1 << 20
LISTS = """
import pynvml as n
n.nvmlInit()
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
print(*[n.nvmlDeviceGetUUID(handle) for handle in handles])
"""


def test_pynvml_reads_what_was_set(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.gpu("GPU-a", name="NVIDIA A100-SXM4-40GB")
    nvml.gpu("GPU-b", vram_mb=16_000)
    nvml.slice("MIG-1", "GPU-b", "NVIDIA A100 1g.5gb", 4864)
    with nvml.here(monkeypatch):
        pynvml.nvmlInit()
        assert pynvml.nvmlSystemGetDriverVersion() == nvml.driver
        first, second = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        assert pynvml.nvmlDeviceGetName(first) == "NVIDIA A100-SXM4-40GB"
        assert pynvml.nvmlDeviceGetCudaComputeCapability(first) == (8, 0)
        nvml.set("GPU-a", utilisation=70, power=250_000, energy=5_000, ecc=2, temperature=None)
        nvml.stranger("GPU-a", memory=512 * MIB, pid=42)
        assert pynvml.nvmlDeviceGetUtilizationRates(first).gpu == 70
        assert pynvml.nvmlDeviceGetPowerUsage(first) == 250_000
        assert pynvml.nvmlDeviceGetTotalEnergyConsumption(first) == 5_000
        assert pynvml.nvmlDeviceGetTotalEccErrors(first, 1, 0) == 2
        assert pynvml.nvmlDeviceGetMemoryInfo(first).used == 512 * MIB
        version = pynvml.nvmlMemory_v2
        assert pynvml.nvmlDeviceGetMemoryInfo(first, version).total == 40_960 * MIB
        (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(first)
        assert (process.pid, process.usedGpuMemory) == (42, 512 * MIB)
        assert pynvml.nvmlDeviceGetGraphicsRunningProcesses(first) == []
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetTemperatureV(first, pynvml.NVML_TEMPERATURE_GPU)
        assert pynvml.nvmlDeviceGetMigMode(second) == [1, 1]
        slice_ = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(second, 0)
        assert pynvml.nvmlDeviceGetUUID(slice_) == "MIG-1"
        parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(slice_)
        assert pynvml.nvmlDeviceGetUUID(parent) == "GPU-b"
        with pytest.raises(pynvml.NVMLError):
            pynvml.nvmlDeviceGetMigDeviceHandleByIndex(second, 1)
        pynvml.nvmlShutdown()


def test_event_reaches_who_listens_and_a_lost_gpu_says_so(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.gpu("GPU-a")
    nvml.xid("GPU-a", 13)
    with nvml.here(monkeypatch):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID("GPU-a")
        events = pynvml.nvmlEventSetCreate()
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
        with pytest.raises(pynvml.NVMLError) as nothing:
            pynvml.nvmlEventSetWait(events, 1)
        assert nothing.value.value == pynvml.NVML_ERROR_TIMEOUT
        nvml.xid("GPU-a", 79)
        heard = pynvml.nvmlEventSetWait(events, 5000)
        assert heard.eventData == 79
        assert pynvml.nvmlDeviceGetUUID(heard.device) == "GPU-a"
        nvml.fail("GPU-a")
        with pytest.raises(pynvml.NVMLError) as lost:
            pynvml.nvmlDeviceGetName(handle)
        assert lost.value.value == pynvml.NVML_ERROR_GPU_IS_LOST
        with pytest.raises(pynvml.NVMLError) as lost:
            pynvml.nvmlEventSetWait(events, 5000)
        assert lost.value.value == pynvml.NVML_ERROR_GPU_IS_LOST
        pynvml.nvmlEventSetFree(events)
        pynvml.nvmlShutdown()


def test_another_process_sees_them_too(nvml: FakeNvml) -> None:
    nvml.gpu("GPU-a")
    nvml.gpu("GPU-b")
    said = subprocess.check_output(
        [sys.executable, "-c", LISTS], env={**os.environ, **nvml.environment}, text=True
    )
    assert said.split() == ["GPU-a", "GPU-b"]
