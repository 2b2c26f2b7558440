"""The machine's speed: measured by a program of its own, and kept for its hardware."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from forge_schema.model.worker import Speed
from forge_worker.devices import GpuDevice
from forge_worker.devices.inventory import Inventory
from forge_worker.machine import measure, speed
from forge_worker.machine.speed import profile, words
from forge_worker.settings.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NEEDED: dict[str, Any] = {"database_url": "postgresql://x/y", "store_url": "file:///store"}
KEPT = Speed("numpy", cpus=2, cpu={"fp32": 40.0}, memory_gb_s=6.5)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WARM_S", "MEASURE_S", "WRITE_S"):
        monkeypatch.setattr(measure, name, 0.01)
    monkeypatch.setattr(measure, "CPU_SIZE", 64)
    monkeypatch.setattr(measure, "GPU_SIZE", 64)


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., WorkerSettings]:
    def made(**given: Any) -> WorkerSettings:  # noqa: ANN401  settings of all types
        return WorkerSettings(**{**NEEDED, "worker_dir": tmp_path, "gpus": "none", **given})

    return made


def python(tmp_path: Path, line: str) -> Path:
    """Return a program that is given as the Python that measures."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    program.chmod(0o755)
    return program


def keep(folder: Path, found: Speed = KEPT) -> None:
    kept = {"on": speed.hardware(Inventory(["none"])), "speed": found.reported()}
    (folder / speed.FILE).write_text(json.dumps(kept), encoding="utf-8")


def test_the_program_measures_with_what_its_python_has_and_keeps_the_result(
    settings: Callable[..., WorkerSettings], tmp_path: Path
) -> None:
    # Without its libraries.
    bare = python(tmp_path, f'exec {sys.executable} -I -S "$@"')
    found = profile(settings(profile_machine=True, measure_python=bare))
    assert (found.method, found.cpus, found.version) == ("python", 1, 1)
    assert found.cpu.keys() == {"fp64"}
    assert (found.cuda, found.rocm, found.mps) == ({}, {}, {})
    assert found.cpu["fp64"] > 0
    assert found.memory_gb_s
    assert found.disk_mb_s
    assert speed.kept(tmp_path, Inventory(["none"])) == found
    assert {path.name for path in tmp_path.iterdir()} == {"python", speed.FILE}


def test_numpy_measures_all_cpus() -> None:
    pytest.importorskip("numpy")
    found = measure.by_numpy()
    assert (found["method"], found["cpus"]) == ("numpy", measure.cpus())
    assert found["cpu"]["fp32"] > 0


class Torch(SimpleNamespace):
    """PyTorch as far as it is used, with two kinds of GPU of which one lacks bf16."""

    float32, bfloat16 = "fp32", "bf16"

    def __init__(self, lacks: tuple[str, str] = ("cuda:2", "bf16")) -> None:
        there = SimpleNamespace(is_available=lambda: True)
        names = ["A100", "A100", "V100"]
        super().__init__(
            cuda=SimpleNamespace(
                is_available=lambda: True,
                device_count=lambda: len(names),
                get_device_name=names.__getitem__,
                synchronize=self.waited,
            ),
            cpu=SimpleNamespace(),
            backends=SimpleNamespace(mps=there),
            mps=SimpleNamespace(synchronize=lambda: None),
            multiplied=[],
            lacks=lacks,
        )

    def rand(self, *_: int) -> Any:  # noqa: ANN401  a tensor
        return SimpleNamespace(to=lambda device, kind: (device, kind))

    def empty(self, *_: int, device: str, dtype: str) -> None:
        if (device, dtype) == self.lacks:
            raise RuntimeError("no such kernel")

    def mm(self, one: tuple[str, str], _other: object, out: None) -> None:
        assert out is None
        self.multiplied.append(one)

    def waited(self, device: str) -> None:
        assert self.multiplied[-1][0] == device


def test_a_gpu_of_each_kind_is_measured_and_the_slowest_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch, rates = Torch(), {"cpu": 5.0, "cuda:0": 300.0, "cuda:2": 100.0}
    real = measure.gflops
    monkeypatch.setitem(sys.modules, "torch", torch)

    def rate(multiply: Callable[[int], None], size: int) -> float:
        assert real(multiply, size) > 0
        return rates[torch.multiplied[-1][0]]

    monkeypatch.setattr(measure, "gflops", rate)
    monkeypatch.setattr(measure, "SAMPLE_S", 1e-4)
    found = measure.processors("cuda")
    assert (found["method"], found["cpu"], found["cuda"]) == ("torch", {"fp32": 5.0}, {"fp32": 100})
    assert set(torch.multiplied) >= {("cuda:0", "fp32"), ("cuda:2", "fp32"), ("cpu", "fp32")}
    # Without a GPU that the worker lends, none is measured.
    assert measure.processors("cpu").keys() == {"method", "cpus", "cpu"}
    assert list(measure.gpus(torch, "mps")) == ["mps"]


def test_a_gpu_that_cannot_be_used_fails_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", Torch(lacks=("cuda:0", "fp32")))
    monkeypatch.setattr(measure, "SAMPLE_S", 1e-4)
    with pytest.raises(RuntimeError, match="no such kernel"):
        measure.processors("cuda")


def test_a_multiplication_of_known_cost_has_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(measure, "perf_counter", lambda: now[0])

    def multiply(rounds: int) -> None:
        # Twice as slow until the processor has warmed up.
        now[0] += rounds * (0.002 if now[0] < 1 else 0.001)

    for name, lasts in (("WARM_S", 1.5), ("MEASURE_S", 1.0)):
        monkeypatch.setattr(measure, name, lasts)
    assert measure.gflops(multiply, 1000) == 2000


def test_a_full_disk_has_no_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure.disk(str(tmp_path))
    monkeypatch.setattr(measure, "MOST_WRITTEN", measure.CHUNK - 1)
    assert measure.disk(str(tmp_path)) is None
    assert measure.disk(str(tmp_path / "gone")) is None


def test_a_speed_holds_for_the_hardware_it_was_measured_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = Inventory(["none"])
    assert speed.kept(tmp_path, devices) is None
    keep(tmp_path)
    assert speed.kept(tmp_path, devices) == KEPT
    devices.gpus = [GpuDevice(uuid="GPU-a", name="A100", vram_mb=1, driver="550")]
    assert speed.kept(tmp_path, devices) is None
    devices.gpus = []
    monkeypatch.setattr(psutil, "cpu_count", lambda: 1000)
    assert speed.kept(tmp_path, devices) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"on": "x"}', '{"on": "{}", "speed": {"a": 1}}'])
def test_a_broken_file_is_no_speed(tmp_path: Path, text: str) -> None:
    devices = Inventory(["none"])
    text = text.replace("{}", speed.hardware(devices))
    (tmp_path / speed.FILE).write_text(text, encoding="utf-8")
    assert speed.kept(tmp_path, devices) is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("echo no such library >&2; exit 3", "failed: no such library"),
        ("echo hello", "printed 'hello"),
        ("exec sleep 60", "did not end within"),
    ],
)
def test_a_failed_measurement_says_why_and_keeps_nothing(
    settings: Callable[..., WorkerSettings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    said: str,
) -> None:
    monkeypatch.setattr(speed, "PATIENCE_S", 0.5)
    given = settings(profile_machine=True, measure_python=python(tmp_path, line))
    with pytest.raises(speed.NotMeasured, match=said):
        profile(given)
    assert not (tmp_path / speed.FILE).exists()
    # At a start it is not worth an end.
    speed.at_start(settings(measure=True, measure_python=tmp_path / "gone"))
    assert not (tmp_path / speed.FILE).exists()


def test_a_start_measures_once_and_only_without_jobs(
    settings: Callable[..., WorkerSettings], tmp_path: Path
) -> None:
    # It prints a speed, and notes each time that it ran.
    printed = json.dumps(KEPT.reported())
    ran = tmp_path / "ran"
    given = {"measure_python": python(tmp_path, f"echo x >> {ran}; echo '{printed}'")}
    speed.at_start(settings(**given))
    assert not ran.exists()
    (tmp_path / "jobs" / "7").mkdir(parents=True)
    speed.at_start(settings(measure=True, **given))
    assert not ran.exists()
    (tmp_path / "jobs" / "7").rmdir()
    for _ in range(2):
        speed.at_start(settings(measure=True, **given))
    assert ran.read_text(encoding="utf-8") == "x\n"
    assert speed.kept(tmp_path, Inventory(["none"])) == KEPT


def test_the_program_learns_no_credentials_and_sees_no_gpu_that_is_not_lent(
    settings: Callable[..., WorkerSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_TOKEN", "secret")
    seen = tmp_path / "seen"
    printed = json.dumps(KEPT.reported())
    profile(settings(measure_python=python(tmp_path, f"env > {seen}; echo '{printed}'")))
    variables = seen.read_text(encoding="utf-8").splitlines()
    assert "CUDA_VISIBLE_DEVICES=" in variables
    assert not [line for line in variables if line.startswith("FORGE_TOKEN")]


def test_a_speed_is_told_in_words() -> None:
    told = words(Speed("torch", cpus=8, cpu={"fp32": 400}, cuda={"bf16": 495e3}, disk_mb_s=1200))
    assert told.splitlines() == [
        "matrix multiplication, with PyTorch:",
        "  8 CPUs, fp32: 400 GFLOPS",
        "  one GPU (cuda), bf16: 495 TFLOPS",
        "disk of the worker's folder, written: 1200 MB/s",
    ]
