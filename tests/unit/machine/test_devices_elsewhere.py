"""GPUs of other vendors: what their programs and the kernel print, read from recorded output."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING, Any

import pynvml
import pytest
from forge_worker.devices import GpuDevice, Use, rocm
from forge_worker.devices.inventory import Inventory, read_hardware
from forge_worker.devices.rocm import read_amd_smi, read_rocm_smi

if TYPE_CHECKING:
    from pathlib import Path

# `rocm-smi … --json` of ROCm 6, a discrete card and the processor's own graphics beside it.
ROCM_SMI = {
    "card0": {
        "Unique ID": "0x9246deadbeef0001",
        "VRAM Total Memory (B)": "17163091968",
        "VRAM Total Used Memory (B)": "692142080",
        "Card Series": "Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]",
        "Card Model": "0x73bf",
        "Card Vendor": "Advanced Micro Devices Inc. [AMD/ATI]",
        "Node ID": "1",
        "GFX Version": "gfx1030",
    },
    "card1": {"Unique ID": "N/A", "VRAM Total Memory (B)": "67108864", "Card Series": "Raphael"},
    "system": {"Driver version": "6.8.5"},
}
# An earlier one wrote the names in lower case.
OLD_ROCM_SMI = {
    "card3": {
        "Unique ID": "0x1f2e3d",
        "VRAM Total Memory (B)": "68702699520",
        "Card series": "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2",
        "Card model": "FirePro W4300",
    }
}
AMD_SMI = [
    {
        "gpu": 0,
        "asic": {
            "market_name": "AMD Instinct MI300X",
            "vendor_id": "0x1002",
            "asic_serial": "0x9C5D6BF6B3A1E5F7",
            "target_graphics_version": "gfx942",
        },
        "driver": {"name": "amdgpu", "version": "6.8.5"},
        "vram": {"type": "HBM", "size": {"value": 196592, "unit": "MB"}},
    },
    {"gpu": 1, "asic": {"market_name": "N/A", "asic_serial": "N/A"}, "vram": {"size": "N/A"}},
]


def node(root: Path, number: int, gpu_id: int, **properties: int) -> None:
    """Write one node as the kernel's compute driver shows it."""
    folder = root / "topology" / "nodes" / str(number)
    (folder / "mem_banks" / "0").mkdir(parents=True)
    (folder / "gpu_id").write_text(f"{gpu_id}\n")
    lines = [f"{name} {value}" for name, value in properties.items() if name != "bytes"]
    (folder / "properties").write_text("\n".join([*lines, ""]))
    heap = f"heap_type {1 if gpu_id else 0}\nsize_in_bytes {properties.get('bytes', 0)}\nflags 0\n"
    (folder / "mem_banks" / "0" / "properties").write_text(heap)


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A topology of a processor, two cards and a card without a number of its own."""
    root = tmp_path / "kfd"
    node(root, 0, 0, cpu_cores_count=16, simd_count=0, bytes=1 << 36)
    card = {"simd_count": 440, "gfx_target_version": 90_010, "bytes": 68_702_699_520}
    node(root, 1, 58_294, unique_id=0x1F2E3D, **card)
    node(root, 2, 4711, unique_id=0xDEADBEEFDEADBEEF, **card)
    node(root, 10, 99, unique_id=0, simd_count=8, gfx_target_version=100_306)
    for pid, gpu_id, held in ((300, 58_294, 4096), (301, 4711, 0)):
        (root / "proc" / str(pid)).mkdir(parents=True)
        (root / "proc" / str(pid) / f"vram_{gpu_id}").write_text(f"{held}\n")
    return root


def test_rocm_smi_names_the_gpus_that_can_be_assigned() -> None:
    said = "WARNING: AMD GPU device(s) is/are in a low-power state.\n\n" + json.dumps(ROCM_SMI)
    name = "AMD Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]"
    known: dict[str, Any] = {"vendor": "amd", "capability": "gfx1030", "driver": "6.8.5"}
    assert read_rocm_smi(said) == [GpuDevice("GPU-9246deadbeef0001", name, 16_368, **known)]
    (old,) = read_rocm_smi(json.dumps(OLD_ROCM_SMI))
    assert (old.uuid, old.vram_mb, old.number) == ("GPU-00000000001f2e3d", 65_520, 3)
    assert old.name == "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2"


def test_amd_smi_names_them_in_a_list_or_below_a_key() -> None:
    known: dict[str, Any] = {"vendor": "amd", "capability": "gfx942", "driver": "6.8.5"}
    expected = [GpuDevice("GPU-9c5d6bf6b3a1e5f7", "AMD Instinct MI300X", 196_592, **known)]
    assert read_amd_smi(json.dumps(AMD_SMI)) == expected
    assert read_amd_smi(json.dumps({"gpu_data": AMD_SMI})) == expected


@pytest.mark.parametrize(
    "said", ["", "{", "[]", "{}", "null", '{"card0": 7}', '[7, {"asic": []}]', "WARNING: no data"]
)
def test_what_cannot_be_read_is_no_gpu(said: str) -> None:
    assert read_rocm_smi(said) == []
    assert read_amd_smi(said) == []
    assert read_hardware(said) is None


def test_the_kernel_tells_what_there_is_and_who_uses_it(kernel: Path) -> None:
    assert rocm.gpus(kernel) == [
        GpuDevice("GPU-00000000001f2e3d", "AMD gfx90a", 65_520, "amd", "gfx90a"),
        GpuDevice("GPU-deadbeefdeadbeef", "AMD gfx90a", 65_520, "amd", "gfx90a"),
    ]
    used = rocm.use(kernel)
    assert used["GPU-00000000001f2e3d"] == Use(frozenset({300}))
    assert used["GPU-deadbeefdeadbeef"] == Use()
    assert (rocm.gpus(kernel / "no"), rocm.use(kernel / "no")) == ([], {})


def test_worker_finds_amds_gpus_by_program_and_their_use_by_the_kernel(
    tmp_path: Path, kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _nothing_of_nvidia(monkeypatch, tmp_path)
    monkeypatch.setattr(rocm.gpus, "__defaults__", (kernel,))
    monkeypatch.setattr(rocm.use, "__defaults__", (kernel,))
    found = Inventory()
    assert (found.accelerator, len(found.gpus)) == ("rocm", 2)
    assert found.use()["GPU-00000000001f2e3d"].computing == {300}
    _script(tmp_path, "rocm-smi", json.dumps(OLD_ROCM_SMI))
    found = Inventory()
    assert [gpu.name for gpu in found.gpus] == ["AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2"]
    assert found.use()["GPU-00000000001f2e3d"].computing == {300}


def test_an_apple_chip_is_one_gpu_with_the_machines_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _nothing_of_nvidia(monkeypatch, tmp_path)
    told = {"chip_type": "Apple M2 Pro", "platform_UUID": "1B2C-3D", "physical_memory": "32 GB"}
    _script(tmp_path, "system_profiler", json.dumps({"SPHardwareDataType": [told]}))
    _script(tmp_path, "sysctl", "34359738368\n")
    assert Inventory().accelerator == "cpu"
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("15.1", ("", "", ""), "arm64"))
    found = Inventory()
    assert (found.accelerator, found.use()) == ("mps", {})
    assert found.gpus == [GpuDevice("MPS-1B2C-3D", "Apple M2 Pro", 32_768, "apple", driver="15.1")]
    _script(tmp_path, "system_profiler", "{}")
    assert Inventory().gpus == []


def _nothing_of_nvidia(patch: pytest.MonkeyPatch, folder: Path) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    patch.setattr(pynvml, "nvmlInit", refuse)
    patch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def _script(folder: Path, name: str, says: str) -> None:
    (folder / f"{name}.txt").write_text(says)
    script = folder / name
    script.write_text('#!/bin/sh\nexec cat "$0.txt"\n')
    script.chmod(0o755)
