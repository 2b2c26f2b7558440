"""The gate before and after each job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_worker.machine.gate import LONGEST_REST_S, REST_S, Gate, GateClosed, Gated
from forge_worker.machine.gate_check import MachineCheck
from forge_worker.machine.gpu_health import GpuMeter

if TYPE_CHECKING:
    from pathlib import Path

    from support.nvml.fake import FakeNvml

JOB = Gated(("GPU-1",), {"FORGE_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "GPU-1"})


class Watch:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def quiet() -> None:
    """Want the job to go on."""


def test_a_program_sees_the_jobs_devices_but_no_token_and_speaks_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_TOKEN", "secret")
    line = "sh -c 'echo $FORGE_JOB_ID $CUDA_VISIBLE_DEVICES $FORGE_GATE ${FORGE_TOKEN-none}'"
    said: list[str] = []
    gate = Gate(tmp_path, before=line, after=line)
    gate.enter(JOB, said.append, quiet)
    gate.leave(JOB, said.append, None)
    assert said == ["--before-job: 7 GPU-1 before-job none", "--after-job: 7 GPU-1 after-job none"]
    assert gate.reason == ""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("sh -c 'echo no fan; exit 3'", "failed: exit code 3: no fan"),
        ("sleep 60", "failed: took longer than 0.2 s"),
        ("/no/such/program", "could not be started: [Errno 2]"),
        # What it leaves running keeps its output open.
        ("sh -c 'sleep 60 & exit 1'", "failed: exit code 1"),
    ],
)
def test_a_failing_program_sets_the_machine_aside_also_after_a_restart(
    tmp_path: Path, line: str, why: str
) -> None:
    rung: list[bool] = []
    gate = Gate(
        tmp_path,
        before=line,
        limit_s=0.2 if "60" in line[:8] else 60,
        changed=lambda: rung.append(True),
    )
    with pytest.raises(GateClosed, match="before-job"):
        gate.enter(JOB, lambda _: None, quiet)
    assert why in gate.reason
    assert why in Gate(tmp_path, before=line).reason
    # A job whose claim was under way does not wait for the program again.
    with pytest.raises(GateClosed):
        gate.enter(JOB, lambda _: None, quiet)
    assert rung == [True]
    gate.release()
    gate.release()
    assert (gate.reason, Gate(tmp_path, before=line).reason, len(rung)) == ("", "", 2)


def test_what_failed_is_tried_again_after_longer_pauses_until_it_passes(tmp_path: Path) -> None:
    watch, broken = Watch(), tmp_path / "broken"
    broken.touch()
    gate = Gate(tmp_path, after=f"test ! -e {broken}", clock=watch)
    gate.leave(JOB, lambda _: None, None)
    pauses = []
    for _ in range(9):
        pause_s = 0.0
        while (before := gate._next_s) > watch.now:
            pause_s, watch.now = before - watch.now, before
        pauses.append(pause_s)
        gate.step()
    assert pauses[:3] == [REST_S, 2 * REST_S, 4 * REST_S]
    assert pauses[-1] == LONGEST_REST_S
    broken.unlink()
    gate.step()
    assert gate.reason
    watch.now += LONGEST_REST_S
    gate.step()
    assert gate.reason == ""


def test_a_job_that_is_no_longer_wanted_ends_the_wait(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def enough() -> None:
        raise Enough

    gate = Gate(tmp_path, before="sleep 600", limit_s=600)
    with pytest.raises(Enough):
        gate.enter(JOB, lambda _: None, enough)
    assert gate.reason == ""


def test_the_built_in_check_finds_broken_gpus(
    tmp_path: Path, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = MachineCheck(tmp_path, GpuMeter(), {"GPU-1": 1000, "GPU-2": 1000}, disk_floor_mb=0)
    gpus = ["GPU-1", "GPU-2"]
    for uuid in gpus:
        nvml.gpu(uuid, vram_mb=1000)
    with nvml.here(monkeypatch):
        assert check(gpus) == ""
        nvml.set("GPU-1", memory=500 << 20)
        nvml.set("GPU-2", ecc=2)
        assert check(gpus) == (
            "GPU GPU-1 has only 500 MiB of free memory;"
            " GPU GPU-2 has 2 uncorrected ECC errors since its driver started"
        )
        assert "GPU-2" not in check(["GPU-1"])
        nvml.fail("GPU-1")
        nvml.remove("GPU-2")
        assert check(gpus) == "GPU GPU-1 does not answer; GPU GPU-2 does not answer"


def test_the_built_in_check_finds_a_bad_disk(tmp_path: Path) -> None:
    full = MachineCheck(tmp_path, GpuMeter(), {}, disk_floor_mb=1 << 40)
    assert "has only" in full([])
    gone = MachineCheck(tmp_path / "gone", GpuMeter(), {}, disk_floor_mb=0)
    assert gone([]).endswith("cannot be written to: No such file or directory")
