"""Admission: when a machine becomes constrained, and when it recovers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from forge_worker.machine.admission import Admission, MachineLimits, Observation, limits_of
from forge_worker.machine.gpu_health import GpuLook
from forge_worker.settings.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

CALM = Observation(10.0, 20.0, 8_000, 9_000, {"GPU-a": GpuLook(5.0), "GPU-b": GpuLook(None)})
LIMITS = MachineLimits(80, 70, 30, memory_reserve_mb=1_000, disk_floor_mb=2_000)
COOLDOWN_S = 60.0


class Machine:
    """A machine that is as the test says, and its time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.seen = CALM
        self.asked: list[str] = []
        self.changes = 0
        self.own: set[str] = set()
        self.admission = Admission(
            LIMITS,
            self,
            period_s=10,
            cooldown_s=COOLDOWN_S,
            gpus=("GPU-a", "GPU-b"),
            own_gpus=lambda: self.own,
            changed=self.change,
            clock=lambda: self.now,
        )

    def look(self, gpus: Iterable[str] = ()) -> Observation:
        self.asked = list(gpus)
        return self.seen

    def disk_free_mb(self) -> int:
        return self.seen.disk_free_mb

    def change(self) -> None:
        self.changes += 1

    def after(self, seconds: float, **changes: Any) -> bool:  # noqa: ANN401  fields of all types
        """Let time pass, have the admission look, and return whether a job may be taken."""
        self.now += seconds
        self.seen = replace(CALM, **changes)
        self.admission.step()
        return self.admission.open


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cpu_percent": 80.6}, "the CPUs are used to 81%, at most 80% is allowed"),
        ({"memory_percent": 71.0}, "the memory is used to 71%"),
        ({"memory_free_mb": 999}, "999 MiB of memory free, 1000 MiB must stay free"),
        ({"disk_free_mb": 0}, "0 B of disk free, 2 GiB must stay free"),
        ({"disk_free_mb": 0, "disk_fault": "no inodes"}, "no inodes"),
        ({"gpus": {"GPU-a": GpuLook(31.0)}}, "GPU GPU-a is used by others to 31%"),
    ],
)
def test_each_limit_has_its_words(changes: dict[str, Any], said: str) -> None:
    machine = Machine()
    assert not machine.after(0, **changes)
    assert said in machine.admission.reason
    assert machine.admission.condition()["constrained"] == machine.admission.reason
    assert machine.asked == ["GPU-a", "GPU-b"]


def test_what_is_at_its_limit_is_within_it() -> None:
    limits = {"cpu_percent": 80.0, "memory_percent": 70.0, "memory_free_mb": 1_000}
    assert Machine().after(0, **limits, disk_free_mb=2_000, gpus={"GPU-a": GpuLook(30.0)})


def test_own_jobs_may_use_their_gpus() -> None:
    machine = Machine()
    machine.own = {"GPU-a"}
    both = {"GPU-a": GpuLook(99.0), "GPU-b": GpuLook(99.0)}
    assert machine.after(0, gpus={"GPU-a": GpuLook(99.0)})
    assert not machine.after(1, gpus=both)
    assert "GPU-b" in machine.admission.reason
    assert "GPU-a" not in machine.admission.reason


def test_all_limits_that_are_passed_are_said() -> None:
    machine = Machine()
    machine.after(0, cpu_percent=99.0, disk_free_mb=1)
    assert machine.admission.reason.count("; ") == 1


def test_it_takes_jobs_again_only_after_the_whole_cooldown() -> None:
    machine = Machine()
    assert machine.after(0)
    assert not machine.after(10, cpu_percent=99.0)
    assert not machine.after(10)
    assert "must last for 1 min" in machine.admission.reason
    assert not machine.after(COOLDOWN_S - 20)
    # A relapse, even at another limit, restarts the wait.
    assert not machine.after(9, memory_percent=99.0)
    assert not machine.after(COOLDOWN_S - 0.1)
    assert machine.after(0.2)
    assert machine.changes == 2
    assert machine.admission.condition() == {**CALM.reported(), "constrained": ""}


def test_without_limits_nothing_constrains() -> None:
    machine = Machine()
    machine.admission = Admission(MachineLimits(), machine, period_s=10, cooldown_s=1)
    worst = {"memory_percent": 100.0, "memory_free_mb": 0, "disk_free_mb": 0}
    assert machine.after(0, cpu_percent=100.0, **worst, gpus={"GPU-a": GpuLook(100.0)})


def test_settings_become_limits() -> None:
    given: dict[str, Any] = {
        "database_url": "postgresql://x/y",
        "store_url": "file:///s",
        "max_cpu_percent": 1,
        "max_memory_percent": 2,
        "max_gpu_percent": 3,
        "memory_reserve_mb": 4,
        "disk_floor_mb": 5,
    }
    assert limits_of(WorkerSettings(**given)) == MachineLimits(1, 2, 3, 4, 5)


def test_a_disk_that_filled_between_two_looks_takes_no_job() -> None:
    machine = Machine()
    assert machine.after(0)
    machine.seen = replace(CALM, disk_free_mb=1)
    assert not machine.admission.open
    assert machine.admission.reason == ""
