"""How a job gets the GPUs that it was lent, and no others: by CDI, by request, by variables."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from forge_worker.machine.slots import MachineSlot
from forge_worker.runners import engines
from forge_worker.runners.docker import hardening
from forge_worker.runners.docker.hardening import DockerPolicy, settings
from forge_worker.runners.runner import RunSpec, StartFailed, visible

if TYPE_CHECKING:
    from pathlib import Path

    from docker.types import DeviceRequest

# As nvidia-ctk writes it, cut short.
YAML = """\
---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
- name: GPU-5a1e
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
- name: MIG-7c2f
  containerEdits:
    hooks:
    - hookName: createContainer
      path: /usr/bin/nvidia-cdi-hook
- name: all
"""


def spec(root: Path, *uuids: str, vendor: str = "nvidia") -> RunSpec:
    return RunSpec(
        name="job",
        command=("true",),
        env={},
        work_dir=root / "work",
        output_dir=root / "output",
        checkpoint_dir=root / "checkpoint",
        control_dir=root / "control",
        log_path=root / "log",
        image="image",
        cpus=1,
        memory_mb=100,
        gpu_uuids=uuids,
        grace_s=1,
        labels={},
        gpu_vendor=vendor,
    )


def arguments(run: RunSpec, devices: list[DeviceRequest]) -> dict[str, Any]:
    return settings(
        run,
        DockerPolicy(),
        user="1:1",
        pipe=run.log_path,
        image={"Env": ["NVIDIA_VISIBLE_DEVICES=all"]},
        host_cpus=2,
        devices=devices,
    )


def test_container_gets_its_gpus_by_cdi_where_the_specs_name_them(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(YAML)
    amd = {"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": [{"name": "GPU-9246"}]}
    (tmp_path / "amd.json").write_text(json.dumps(amd))
    (tmp_path / "other.json").write_text('{"kind": "acme.com/nic", "devices": [{"name": "x"}]}')
    (tmp_path / "broken.json").write_bytes(b"\xff")
    by_cdi = hardening.cdi_devices({"CDISpecDirs": [str(tmp_path), "/no/such/folder"]})
    kinds = {name.partition("=")[0] for name in by_cdi}
    assert kinds == {"nvidia.com/gpu", "amd.com/gpu"}
    (request,) = hardening.gpu_requests(("GPU-5a1e", "MIG-7c2f"), "nvidia", by_cdi)
    assert (request["Driver"], request["DeviceIDs"]) == (
        "cdi",
        ["nvidia.com/gpu=GPU-5a1e", "nvidia.com/gpu=MIG-7c2f"],
    )
    # Else the engine's own runtime would give what the image asks for, which is all of them.
    made = arguments(spec(tmp_path, "GPU-5a1e"), [request])
    assert made["device_requests"] == [request]
    assert made["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "CUDA_VISIBLE_DEVICES" not in made["environment"]
    (request,) = hardening.gpu_requests(("GPU-9246",), "amd", by_cdi)
    assert request["DeviceIDs"] == ["amd.com/gpu=GPU-9246"]


def test_container_gets_its_gpus_by_request_where_no_spec_names_them_all(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(YAML)
    by_cdi = hardening.cdi_devices({"CDISpecDirs": [str(tmp_path)]})
    # An engine before version 25 says nothing of CDI, and one that has it switched off names none.
    for known in (by_cdi, hardening.cdi_devices({}), hardening.cdi_devices({"CDISpecDirs": None})):
        (request,) = hardening.gpu_requests(("GPU-5a1e", "GPU-else"), "nvidia", known)
        assert request == {
            "Driver": "",
            "Count": 0,
            "DeviceIDs": ["GPU-5a1e", "GPU-else"],
            "Capabilities": [["gpu"]],
            "Options": {},
        }
        made = arguments(spec(tmp_path, "GPU-5a1e"), [request])
        assert "NVIDIA_VISIBLE_DEVICES" not in made["environment"]
    with pytest.raises(StartFailed) as refused:
        hardening.gpu_requests(("GPU-9246",), "amd", by_cdi)
    assert "process mode" in refused.value.hint


def test_container_without_gpus_sees_none(tmp_path: Path) -> None:
    assert hardening.gpu_requests((), "", frozenset()) == []
    made = arguments(spec(tmp_path), [])
    assert made["device_requests"] == []
    assert made["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert made["environment"]["CUDA_VISIBLE_DEVICES"] == ""


def test_process_sees_its_own_gpus_alone() -> None:
    assert visible(("GPU-a", "MIG-b"), "nvidia") == {"CUDA_VISIBLE_DEVICES": "GPU-a,MIG-b"}
    assert visible(("GPU-a", "GPU-b"), "amd") == {
        "ROCR_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "HIP_VISIBLE_DEVICES": "0,1",
    }
    assert visible(("MPS-a",), "apple") == {}
    assert set(visible((), "").values()) == {""}


@pytest.mark.parametrize(
    ("memory_mb", "samples"),
    [(81_920, 256), (81_559, 256), (24_576, 64), (4864, 16), (256, 1), (0, 1), (9 << 20, 1024)],
)
def test_hint_for_a_batch_is_a_power_of_two_by_memory(memory_mb: int, samples: int) -> None:
    assert MachineSlot(1, memory_mb, 0).batch_size == samples
    assert MachineSlot(1, 1, 0, gpu_uuids=("GPU-a",), vram_mb=memory_mb).batch_size == samples


def test_only_a_member_of_a_gang_with_gpus_has_the_fast_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def devices(*uuids: str, gang: bool) -> list[str]:
        wanted = replace(spec(tmp_path, *uuids), host_network=gang)
        made = settings(
            wanted, DockerPolicy(), user="1", pipe=tmp_path / "pipe", image={}, host_cpus=1
        )
        found: list[str] = made["devices"]
        return found

    monkeypatch.setattr(hardening, "INFINIBAND", tmp_path)
    assert devices("GPU-a", gang=True) == [str(tmp_path)]
    assert devices("GPU-a", gang=False) == devices(gang=True) == []
    monkeypatch.setattr(hardening, "INFINIBAND", tmp_path / "none")
    assert devices("GPU-a", gang=True) == []


def test_gpus_come_to_podman_by_cdi_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Podman 5.4.2 accepts a request by capability, and starts the container without a GPU."""
    info = {"BuildahVersion": "1.39.3", "ServerVersion": "5.4.2", "CDISpecDirs": None}
    monkeypatch.setattr(engines, "CDI_FOLDERS", (str(tmp_path),))
    podman = engines.kind_of(info)
    asked = ("GPU-5a1e",)
    with pytest.raises(StartFailed, match="no CDI spec that names the GPU GPU-5a1e") as refused:
        hardening.gpu_requests(asked, "nvidia", hardening.cdi_devices(info), podman)
    assert "--device-name-strategy=uuid" in str(refused.value.hint)
    (tmp_path / "nvidia.yaml").write_text(YAML)
    (request,) = hardening.gpu_requests(asked, "nvidia", hardening.cdi_devices(info), podman)
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=GPU-5a1e"])
    # Before version 5.4 it heeds no request for devices at all.
    old = engines.kind_of({**info, "ServerVersion": "5.1.2"})
    with pytest.raises(StartFailed, match=r"Podman 5\.1\.2 gives containers no GPUs"):
        hardening.gpu_requests(asked, "nvidia", hardening.cdi_devices(info), old)
    assert hardening.gpu_requests((), "nvidia", frozenset(), old) == []


def test_variable_of_podman_does_not_reach_the_job(tmp_path: Path) -> None:
    def script(run: RunSpec, engine: engines.EngineKind, **image: Any) -> str:  # noqa: ANN401  as in an image
        made = settings(
            run, DockerPolicy(), user="1:1", pipe=run.log_path, image=image, host_cpus=2,
            kind=engine,
        )  # fmt: skip
        return str(made["entrypoint"][2])

    own = replace(spec(tmp_path), env={"container": "mine"})
    podman = engines.EngineKind(engines.PODMAN)
    assert script(spec(tmp_path), podman).startswith("unset container; ")
    secret = replace(spec(tmp_path), secrets={"container": "mine"})
    for kept in (
        script(own, podman),
        script(secret, podman),
        script(spec(tmp_path), podman, Env=["container=oci"]),
        script(spec(tmp_path), engines.EngineKind()),
    ):
        assert "unset container" not in kept
