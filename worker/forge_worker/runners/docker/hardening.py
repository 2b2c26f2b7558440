"""The settings of a job's container: its permissions, mounts and limits.

The job gets no capabilities, cannot gain privileges, runs as its own user, can write only to its
four folders and /tmp, and has no engine socket. The engine's default seccomp profile stays on.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

from forge_worker.runners.docker.first_shell import GROUP, PIPE, SCRIPT
from forge_worker.runners.docker.mounts import TAKE
from forge_worker.runners.docker.network import NETWORK
from forge_worker.runners.engines import EngineKind, kind_of
from forge_worker.runners.runner import HIDDEN, StartFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from forge_worker.runners.runner import Mount as Bind
    from forge_worker.runners.runner import RunSpec

CDI = "cdi"
# The engine gives a container all devices of a folder.
INFINIBAND = Path("/dev/infiniband")
NO_SPECS = "install the vendor's container toolkit, or run the worker in process mode"
SPECS = {
    "nvidia": "nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml"
    " describes the GPUs; or run the worker in process mode"
}
KINDS = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
# Programs write CDI specs as JSON or plain YAML; this pattern finds the kind in both.
KIND = re.compile(r"""["']?\bkind["']?\s*:\s*["']?([^"'\s,}]+)""")
NAME = re.compile(r"""["']?\bname["']?\s*:\s*["']?([^"'\s,}]+)""")
WORK = "/forge/work"
OUTPUT = "/forge/output"
CHECKPOINT = "/forge/checkpoint"
CONTROL = "/forge/control"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MIB = 1 << 20
NANO = 1_000_000_000
HOSTNAME_LENGTH = 63
# Podman sets this variable in each container.
LEAKED = "container"
LEAK = f"unset {LEAKED}; "
# The queue refuses them too; they take effect before the job's first instruction.
REFUSED_ENV = ("LD_", "NVIDIA_")


def cdi_devices(info: Mapping[str, Any]) -> frozenset[str]:
    """Return the devices that an engine can assign by CDI, as `kind=name`.

    `info` is the engine's system information; from version 25 on, Docker's names the spec folders.
    """
    files = (file for place in kind_of(info).cdi for file in _specs(place))
    return frozenset(name for file in files for name in _devices(file))


def gpu_requests(
    uuids: tuple[str, ...], vendor: str, by_cdi: frozenset[str], kind: EngineKind | None = None
) -> list[DeviceRequest]:
    """Return the device requests that give a container its GPUs and no others.

    Raises:
        StartFailed: this engine cannot assign them.
    """
    if not uuids:
        return []
    if kind is not None and not kind.assigns:
        raise StartFailed(
            f"{kind} gives containers no GPUs when it is asked as Docker is",
            hint="install Podman 5.4 or newer, or run the worker in process mode",
        )
    names = [f"{KINDS.get(vendor, '')}={uuid}" for uuid in uuids]
    if by_cdi.issuperset(names):
        return [DeviceRequest(driver=CDI, device_ids=names)]
    # Podman accepts a request by capability, and then gives nothing.
    if vendor != "nvidia" or (kind is not None and kind.podman):
        raise StartFailed(
            f"this engine has no CDI spec that names the GPU {uuids[0]}",
            hint=SPECS.get(vendor, NO_SPECS),
        )
    return [DeviceRequest(device_ids=list(uuids), capabilities=[["gpu"]])]


def _specs(place: Path) -> Iterable[Path]:
    with suppress(OSError):
        return sorted(file for file in place.iterdir() if file.suffix in {".json", ".yaml"})
    return []


def _devices(file: Path) -> list[str]:
    with suppress(OSError, UnicodeDecodeError):
        text = file.read_text(encoding="utf-8")
        kind = KIND.search(text)
        if kind and kind[1] in KINDS.values():
            return [f"{kind[1]}={name}" for name in NAME.findall(text)]
    return []


@dataclass(frozen=True)
class DockerPolicy:
    """What the operator of a machine allows its containers; no job can change it.

    `allowed_images` are globs of the images that a job may name; `mounts` apply to every job. The
    containers of `gangs` have the machine's network (`host`), or publish single ports. `uid` and
    `gid` own the job's folders and run it; they take effect only if the agent is root, since no
    other user can change the owner of folders.
    """

    network: Literal["bridge", "none"] = "bridge"
    pull: Literal["missing", "always", "never"] = "missing"
    default_image: str | None = None
    allowed_images: tuple[str, ...] = ("*",)
    allow_builds: bool = False
    build_limit_s: float = 1800.0
    allow_swap: bool = False
    allow_metadata: bool = False
    gangs: Literal["host", "ports", "none"] = "none"
    mounts: tuple[Bind, ...] = ()
    uid: int = 65532
    gid: int = 65532
    pids_limit: int = 4096


def settings(
    spec: RunSpec,
    policy: DockerPolicy,
    *,
    user: str,
    pipe: Path,
    image: Mapping[str, Any],
    host_cpus: float,
    devices: Sequence[DeviceRequest] = (),
    sandbox: str = "",
    user_name: str = "",
    bridge: str = NETWORK,
    kind: EngineKind | None = None,
) -> dict[str, Any]:
    """Return the arguments for docker-py's `containers.create`, except for the image.

    `image` is the image's configuration from the engine; `devices` are the requests for GPUs;
    `sandbox` is the id of a container whose network the job joins, and `user_name` the name that
    `user` has in the container. Otherwise it is on the network `bridge`, if any. `kind` is the
    engine's.
    """
    kind = kind or EngineKind()
    script = (LEAK if kind.podman and not _sets(spec, image, LEAKED) else "") + SCRIPT
    return {
        "name": spec.name,
        "labels": dict(spec.labels),
        "entrypoint": ["/bin/sh", "-c", (TAKE if spec.secrets else "") + script, "sh"],
        "command": [*(image.get("Entrypoint") or []), *spec.command],
        "environment": _environment(spec, image, devices, user_name),
        "working_dir": WORK,
        "mounts": _mounts(spec, policy, pipe),
        "user": user,
        **remapping(kind),
        **_networking(spec, policy, sandbox, bridge),
        "healthcheck": {"test": ["NONE"]},
        # The output goes through the pipe; this log has only failures before the redirection.
        "log_config": LogConfig(type="json-file", config={"max-size": "1m", "max-file": "1"}),
        **_confinement(spec, policy),
        "device_requests": list(devices),
        **_resources(spec, policy, host_cpus),
    }


def network(policy: DockerPolicy) -> str:
    """Return the network of jobs on one machine."""
    return NETWORK if policy.network == "bridge" else "none"


def remapping(kind: EngineKind) -> dict[str, Any]:
    """Return the setting with which ids in a container are those of this machine."""
    return {"userns_mode": "host"} if kind.remaps else {}


def on_bridge(spec: RunSpec, policy: DockerPolicy) -> bool:
    """Return whether a job's container is on a bridge, rather than none or the machine's."""
    return not spec.host_network and bool(spec.publishes or policy.network == "bridge")


def _networking(spec: RunSpec, policy: DockerPolicy, sandbox: str, bridge: str) -> dict[str, Any]:
    if sandbox:
        # Its hostname and its names for addresses come with it.
        return {"network_mode": f"container:{sandbox}"}
    return {
        "hostname": spec.name[:HOSTNAME_LENGTH],
        "network": _network(spec, policy, bridge),
        "ports": _ports(spec),
    }


def _network(spec: RunSpec, policy: DockerPolicy, bridge: str) -> str:
    """Return the network; training libraries listen on ports that only they know."""
    if spec.host_network:
        return "host"
    return bridge if on_bridge(spec, policy) else "none"


def _sets(spec: RunSpec, image: Mapping[str, Any], name: str) -> bool:
    return name in {*spec.env, *spec.secrets} or any(
        it.startswith(f"{name}=") for it in image.get("Env") or []
    )


def _ports(spec: RunSpec) -> dict[str, tuple[str, int]]:
    return {} if spec.publishes is None else {f"{spec.publishes[1]}/tcp": spec.publishes}


def _confinement(spec: RunSpec, policy: DockerPolicy) -> dict[str, Any]:
    # NCCL locks memory. Not every engine may raise this limit, and without GPUs nobody needs it.
    by_nccl = spec.host_network and spec.gpu_uuids
    locked = [Ulimit(name="memlock", soft=-1, hard=-1)] if by_nccl else []
    return {
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "privileged": False,
        "read_only": True,
        "init": True,
        "ipc_mode": "private",
        "pids_limit": policy.pids_limit,
        "ulimits": [Ulimit(name="core", soft=0, hard=0), *locked],
        "devices": [str(INFINIBAND)] if by_nccl and INFINIBAND.is_dir() else [],
    }


def _resources(spec: RunSpec, policy: DockerPolicy, host_cpus: float) -> dict[str, Any]:
    memory = spec.memory_mb * MIB
    return {
        "nano_cpus": int(min(spec.cpus, host_cpus) * NANO),
        "mem_limit": memory,
        # Memory and swap together: as much swap as memory, or none.
        "memswap_limit": memory * 2 if policy.allow_swap else memory,
        # Both count towards the memory limit. /tmp is executable for kernel compilers.
        "shm_size": memory // 2,
        "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={memory // 2}"},  # noqa: S108  the container's
    }


def _environment(
    spec: RunSpec, image: Mapping[str, Any], devices: Sequence[DeviceRequest], user_name: str
) -> dict[str, str]:
    named = {entry.partition("=")[0] for entry in image.get("Env") or []}
    usual = {"LANG": "C.UTF-8", "USER": user_name, "LOGNAME": user_name}
    base = {"HOME": WORK} | {name: it for name, it in usual.items() if name not in named}
    # Many images request all GPUs with this variable, and some engines would grant that.
    asked = any(request["Driver"] != CDI for request in devices)
    gpus = {} if asked else {"NVIDIA_VISIBLE_DEVICES": "void"}
    gpus |= {} if spec.gpu_uuids else HIDDEN
    own = {name: value for name, value in spec.env.items() if not name.startswith(REFUSED_ENV)}
    return {**base, **own, **_paths(spec, image), **gpus, **GROUP}


def _paths(spec: RunSpec, image: Mapping[str, Any]) -> dict[str, str]:
    kept = dict(entry.partition("=")[::2] for entry in image.get("Env") or [])
    paths = {}
    if spec.bin_dirs:
        path = spec.env.get("PATH") or kept.get("PATH") or DEFAULT_PATH
        paths["PATH"] = ":".join([*map(str, spec.bin_dirs), path])
    if spec.python_dirs:
        own = spec.env.get("PYTHONPATH") or kept.get("PYTHONPATH")
        paths["PYTHONPATH"] = ":".join([*([own] if own else []), *map(str, spec.python_dirs)])
    return paths


def places(spec: RunSpec) -> tuple[str, str, str, str]:
    """Return the job's four folders as paths in the container."""
    inner = spec.checkpoint_dir.is_relative_to(spec.work_dir)
    below = spec.checkpoint_dir.relative_to(spec.work_dir) if inner else None
    return WORK, OUTPUT, f"{WORK}/{below}" if below else CHECKPOINT, CONTROL


def _mounts(spec: RunSpec, policy: DockerPolicy, pipe: Path) -> list[Mount]:
    own = [
        Mount(target=target, source=str(source.absolute()), type="bind")
        for target, source in zip((*places(spec), PIPE), (*spec.folders, pipe), strict=True)
        # It is in the work folder then. A mount point could not be removed or replaced.
        if source != spec.checkpoint_dir or target == CHECKPOINT
    ]
    more = [
        Mount(str(m.target), str(m.source.absolute()), type="bind", read_only=not m.writable)
        for m in (*policy.mounts, *spec.mounts)
    ]
    return own + more
