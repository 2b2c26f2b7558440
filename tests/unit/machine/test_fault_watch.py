"""The events that the fault watch receives, step by step, on simulated GPUs."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

import pynvml
import pytest
from forge_worker.machine.gpu_health import FaultWatch, GpuMeter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.nvml.fake import FakeNvml


class Watching:
    """A watch that is driven by hand, and what it said."""

    def __init__(self, *gpus: str) -> None:
        self.said: list[tuple[str, str]] = []
        self.watch = FaultWatch(gpus, GpuMeter(), lambda *fault: self.said.append(fault), look_s=0)
        self.watch.step()


@pytest.fixture
def gpus(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    monkeypatch.setattr("forge_worker.machine.gpu_health.HEAR_S", 0.01)
    nvml.gpu("GPU-a")
    nvml.gpu("GPU-b")
    with nvml.here(monkeypatch):
        yield nvml


def test_fault_of_a_gpu_is_one_of_all_its_slices(gpus: FakeNvml) -> None:
    gpus.slice("MIG-1", "GPU-b", "NVIDIA A100 1g.5gb", 4864)
    gpus.slice("MIG-2", "GPU-b", "NVIDIA A100 1g.5gb", 4864)
    watching = Watching("GPU-a", "MIG-1", "MIG-2")
    gpus.xid("GPU-b", 31)
    gpus.xid("GPU-b", 95)
    watching.watch.step()
    why = "XID 95: uncontained memory error"
    assert watching.said == [("MIG-1", why), ("MIG-2", why)]


def test_lost_gpu_does_not_drown_the_others(gpus: FakeNvml) -> None:
    watching = Watching("GPU-a", "GPU-b")
    gpus.fail("GPU-a")
    watching.watch.step()
    assert watching.said == [("GPU-a", "the GPU no longer answers")]
    watching.watch.step()
    gpus.xid("GPU-b", 62)
    watching.watch.step()
    assert watching.said[1:] == [("GPU-b", "XID 62: internal micro-controller halted")]


def test_errors_that_memory_had_before_are_not_new(gpus: FakeNvml) -> None:
    gpus.set("GPU-a", ecc=7)
    watching = Watching("GPU-a")
    gpus.set("GPU-a", ecc=0)
    watching.watch.step()
    assert watching.said == []
    gpus.set("GPU-a", ecc=1)
    watching.watch.step()
    assert watching.said == [("GPU-a", "1 uncorrected ECC errors")]


def test_a_watch_catches_up_to_the_last_event(gpus: FakeNvml) -> None:
    watching = Watching("GPU-a")
    for code in (13, 31, 43, 45, 48):
        gpus.xid("GPU-a", code)
    watching.watch.start()
    try:
        watching.watch.catch_up(patience_s=60)
        assert [why[:6] for _, why in watching.said] == ["XID 48"]
    finally:
        watching.watch.end()
    # Once it has ended, nobody waits for it.
    waiting = Thread(target=watching.watch.catch_up, args=(3600,))
    waiting.start()
    waiting.join(60)
    assert not waiting.is_alive()


def test_driver_that_reports_no_events_is_still_looked_at(
    gpus: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", refuse)
    watching = Watching("GPU-a")
    gpus.fail("GPU-a")
    watching.watch.step()
    assert watching.said == [("GPU-a", "the GPU no longer answers")]
