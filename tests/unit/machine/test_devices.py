"""The inventory of NVIDIA's GPUs: through NVML, through nvidia-smi, or none at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pynvml
import pytest
from forge_schema.model import worker
from forge_worker.devices import GpuDevice, Use
from forge_worker.devices.inventory import GpuMissing, GpusUnclear, Inventory, visible
from forge_worker.devices.nvidia import Nvml
from pydantic import TypeAdapter
from structlog.testing import capture_logs

if TYPE_CHECKING:
    from pathlib import Path

    from support.nvml.fake import FakeNvml

MIB = 1 << 20
VARIABLE = "CUDA_VISIBLE_DEVICES"
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
# As the program prints it, for one whole GPU and one in MIG mode.
LIST = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbb)
  MIG 3g.20gb     Device  0: (UUID: MIG-1111)
  MIG 1c.1g.5gb   Device  1: (UUID: MIG-2222)
"""
QUERY = """\
0, GPU-aaaa, NVIDIA A100-SXM4-40GB, 40960, 8.0, 550.54.15, Disabled
1, GPU-bbbb, NVIDIA A100-SXM4-40GB, 40960, 8.0, 550.54.15, Enabled
"""
OLD_QUERY = "0, GPU-aaaa, Tesla K80, 11441, 418.67\n"
# Answers from files beside it, by what it is asked; a question without a file is refused.
PROGRAM = """\
#!/bin/sh
case "$1" in
    -L) name=list ;;
    --query-compute-apps=*) name=apps ;;
    --query-gpu=*compute_cap*) name=query ;;
    *) name=old ;;
esac
exec cat "${0%/*}/$name.txt"
"""


def program(patch: pytest.MonkeyPatch, folder: Path, **answers: str) -> None:
    """Put an nvidia-smi on PATH, and keep this machine's NVML out of the test."""
    script = folder / "nvidia-smi"
    script.write_text(PROGRAM)
    script.chmod(0o755)
    for name, text in answers.items():
        (folder / f"{name}.txt").write_text(text)
    patch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    patch.setattr(pynvml, "nvmlInit", _refuse)


def _refuse() -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


def test_nvml_tells_all_of_each_gpu_and_of_slices_instead_of_their_gpu(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.gpu("GPU-a", "NVIDIA H100", 81_559)
    nvml.gpu("GPU-b", "NVIDIA A100", 40_960)
    nvml.slice("MIG-1", "GPU-b", "NVIDIA A100 MIG 3g.20gb", 19_968)
    nvml.slice("MIG-2", "GPU-b", "NVIDIA A100 MIG 1g.5gb", 4864)
    nvml.gpu("GPU-c", "NVIDIA A100", 40_960)
    nvml.set("GPU-c", mig=1)
    nvml.gpu("GPU-d", "NVIDIA GB10", 0)
    nvml.set("GPU-d", vram=None)
    nvml.gpu("GPU-e")
    nvml.fail("GPU-e")
    told: dict[str, Any] = {"capability": "8.0", "driver": "550.54.15"}
    with nvml.here(monkeypatch):
        found = Inventory()
        assert found.accelerator == "cuda"
        # Of the third nothing is left to lend, and of the fourth nobody knows the memory.
        assert found.gpus == [
            GpuDevice("GPU-a", "NVIDIA H100", 81_559, **told),
            GpuDevice("MIG-1", "NVIDIA A100 MIG 3g.20gb", 19_968, parent="GPU-b", **told),
            GpuDevice("MIG-2", "NVIDIA A100 MIG 1g.5gb", 4864, parent="GPU-b", **told),
            GpuDevice("GPU-d", "NVIDIA GB10", 0, **told),
        ]
        for gpu in found.gpus:
            TypeAdapter(worker.Gpu).validate_json(json.dumps(gpu.reported()))
        assert [gpu.uuid for gpu in Inventory(["1", "gpu-A"]).gpus] == ["GPU-a", "MIG-1", "MIG-2"]
        assert [gpu.uuid for gpu in Inventory(["MIG-2"]).gpus] == ["MIG-2"]
        assert [gpu.uuid for gpu in Inventory(["GPU-b"]).gpus] == ["MIG-1", "MIG-2"]
        left = {
            said: [gpu.uuid for gpu in visible(found.gpus, "cuda", {VARIABLE: said, **BY_BUS})]
            for said in ("", "-1", "NoDevFiles", "3", " 0,1", "0,7,3", "MIG-2", "gpu-d,GPU-a")
        }
        assert left == {
            "": [],
            "-1": [],
            "NoDevFiles": [],
            "3": ["GPU-d"],
            " 0,1": ["GPU-a", "MIG-1", "MIG-2"],
            "0,7,3": ["GPU-a"],
            "MIG-2": ["MIG-2"],
            "gpu-d,GPU-a": ["GPU-a", "GPU-d"],
        }
        assert visible(found.gpus, "rocm", {VARIABLE: "0"}) == found.gpus
        for said in ("", "gpu-d,GPU-a", "MIG-2"):
            assert [gpu.uuid for gpu in visible(found.gpus, "cuda", {VARIABLE: said})] == left[said]
        monkeypatch.setenv(VARIABLE, "0")
        with pytest.raises(GpusUnclear, match=f"{VARIABLE}=0 may mean other GPUs"):
            Inventory(["visible"])
        alike = [gpu for gpu in found.gpus if "A100" in gpu.name]
        assert visible(alike, "cuda", {VARIABLE: "1"}) == alike
        assert visible(found.gpus[:3], "cuda", {VARIABLE: "1,0"}) == found.gpus[:3]
        monkeypatch.setenv(*next(iter(BY_BUS.items())))
        assert [gpu.uuid for gpu in Inventory(["visible"]).gpus] == ["GPU-a"]
        assert Inventory(["all"]).gpus == found.gpus
        none = Inventory(["none"])
        assert (none.gpus, none.accelerator, none.use()) == ([], "cpu", {})
        for words in (["GPU-a", "GPU-z"], ["all", "0"], ["7"]):
            with pytest.raises(GpuMissing) as missing:
                Inventory(words)
        assert "'7'" in missing.value.message
        assert "0: GPU-a (NVIDIA H100)" in missing.value.hint


def test_gpu_that_does_not_answer_is_told_of_once(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uuid in ("GPU-a", "GPU-b", "GPU-c"):
        nvml.gpu(uuid)
    nvml.fail("GPU-b")
    with nvml.here(monkeypatch), capture_logs() as logs:
        source = Nvml()
        assert source.use() == source.use() == {"GPU-a": Use(), "GPU-c": Use()}
        nvml.fail("GPU-c")
        assert source.use() == {"GPU-a": Use()}
        assert [gpu.uuid for gpu in source.gpus()] == ["GPU-a"]
        assert [line["gpu"] for line in logs] == [1, 2]


def test_nvml_tells_who_uses_what(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    for uuid in ("GPU-a", "GPU-b", "GPU-c"):
        nvml.gpu(uuid)
    nvml.slice("MIG-1", "GPU-b", "NVIDIA A100 MIG 1g.5gb", 4864)
    nvml.process("GPU-a", 11, 700 * MIB, "graphics")
    nvml.process("GPU-a", 12, 30 * MIB, "graphics")
    nvml.process("GPU-c", 13, 30 * MIB, "graphics")
    nvml.stranger("GPU-c", 1000 * MIB, pid=13)
    nvml.stranger("MIG-1", pid=14)
    with nvml.here(monkeypatch):
        found = Inventory()
        assert found.use() == {
            "GPU-a": Use(taken_mb=730),
            "MIG-1": Use(frozenset({14})),
            "GPU-c": Use(frozenset({13})),
        }
        nvml.gone("MIG-1", 14)
        nvml.fail("GPU-a")
        monkeypatch.setattr(Nvml, "fresh_s", 3600.0)
        assert found.use()["MIG-1"].computing == {14}
        assert found.use(anew=True) == {
            "GPU-a": Use(gone=True),
            "MIG-1": Use(),
            "GPU-c": Use(frozenset({13})),
        }


def test_nvidia_smi_is_asked_where_nvml_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps = "GPU-aaaa, 4711\nGPU-aaaa, 4712\nGPU-bbbb, [N/A]\n"
    answers = {"list": LIST, "query": QUERY, "apps": apps}
    program(monkeypatch, tmp_path, **answers)
    name = "NVIDIA A100-SXM4-40GB"
    told: dict[str, Any] = {"capability": "8.0", "driver": "550.54.15"}
    found = Inventory()
    assert found.gpus == [
        GpuDevice("GPU-aaaa", name, 40_960, **told),
        GpuDevice("MIG-1111", f"{name} MIG 3g.20gb", 20_480, parent="GPU-bbbb", **told),
        GpuDevice("MIG-2222", f"{name} MIG 1c.1g.5gb", 5120, parent="GPU-bbbb", **told),
    ]
    assert found.accelerator == "cuda"
    assert found.use()["GPU-aaaa"] == Use(frozenset({4711, 4712}))
    # Of slices it says nothing, which is no reason not to lend them.
    assert found.use()["MIG-1111"] == Use()
    assert [gpu.uuid for gpu in Inventory(["1"]).gpus] == ["MIG-1111", "MIG-2222"]


def test_nvidia_smi_may_be_old_or_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, tmp_path, old=OLD_QUERY)
    found = Inventory()
    assert found.gpus == [GpuDevice("GPU-aaaa", "Tesla K80", 11_441, driver="418.67")]
    assert found.use() == {}
    for broken in ("", "No devices were found\n", "0, GPU-aaaa\n", "\xff\0, , , ,\n"):
        (tmp_path / "old.txt").write_text(broken)
        assert Inventory().gpus == []


def test_where_there_is_nothing_nothing_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(pynvml, "nvmlInit", _refuse)
    found = Inventory()
    assert (found.gpus, found.accelerator, found.use(anew=True)) == ([], "cpu", {})
    with pytest.raises(GpuMissing) as missing:
        Inventory(["0"])
    assert "no GPU is found" in missing.value.hint
