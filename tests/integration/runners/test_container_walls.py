"""The walls of a container as a program inside finds them, and the operator's say in them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, flock
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
from forge_worker.runners.runner import Mount
from support.waiting import eventually
from support.workers.runners import Bench, docker_runner, require_docker, sandboxes_for

if TYPE_CHECKING:
    from collections.abc import Iterator

# Limits are in one of two places, depending on the version of the kernel's control groups.
LOOK = """
import json, os
def read(*paths):
    return next((open(path).read().strip() for path in paths if os.path.exists(path)), None)
def made(place):
    try:
        open(os.path.join(place, "x"), "w").close()
        return True
    except OSError:
        return False
memory = "/sys/fs/cgroup/memory/memory."
print(json.dumps({
    "uid": os.getuid(),
    "environment": dict(os.environ),
    "mounts": {line.split()[1]: line.split()[2:4] for line in open("/proc/self/mounts")},
    "memory": read(memory + "limit_in_bytes", "/sys/fs/cgroup/memory.max"),
    "both": read(memory + "memsw.limit_in_bytes"),
    "swap": read("/sys/fs/cgroup/memory.swap.max"),
    "processes": read("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max"),
    "made": [place for place in PLACES if made(place)],
    "first": open("/proc/1/cmdline").read().split("\\0")[0],
}))
"""
PLACES = ["/ours/read", "/ours/write", "/spec/read", "/spec/write", "/etc", "/tmp"]  # noqa: S108
MEMORY = 256 << 20


def mounts(root: Path, name: str) -> tuple[Mount, ...]:
    made = []
    for mode in ("read", "write"):
        here = root / f"{name}-{mode}"
        here.mkdir()
        here.chmod(0o777)
        target = PurePosixPath("/", name, mode)
        made.append(Mount(here, target, writable=mode == "write"))
    return tuple(made)


def look(root: Path, *, sandboxes: int = 0, **changes: Any) -> dict[str, Any]:  # noqa: ANN401  as above
    """Run a job that asks for a lot, and return what it finds."""
    require_docker()
    bench = Bench(docker_runner(mounts=mounts(root, "ours"), **changes), root)
    wanted = {
        "LD_PRELOAD": "/forge/work/mine.so",
        "LD_LIBRARY_PATH": "/forge/work",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "all",
        "OWN": "kept",
    }
    spec_mounts = mounts(root, "spec")
    source = LOOK.replace("PLACES", repr(PLACES))
    with sandboxes_for(bench, sandboxes):
        job = bench.python(source, memory_mb=256, env=wanted, mounts=spec_mounts)
        assert job.result().code == 0, job.output
        found: dict[str, Any] = json.loads(job.output)
    return found


def test_job_finds_its_limits_its_folders_and_nothing_else(tmp_path: Path) -> None:
    found = look(tmp_path, sandboxes=1, pids_limit=99)
    assert found["uid"] != 0
    assert found["processes"] == "99"
    assert int(found["memory"]) == MEMORY
    assert found["both"] == str(MEMORY) if found["swap"] is None else found["swap"] == "0"
    assert found["made"] == ["/ours/write", "/spec/write", "/tmp"]  # noqa: S108  the container's
    kind, options = found["mounts"]["/tmp"]  # noqa: S108  as above
    assert kind == "tmpfs"
    assert {"nosuid", "nodev"} <= set(options.split(","))
    assert "ro" in found["mounts"]["/"][1].split(",")
    assert not [place for place in found["mounts"] if "docker.sock" in place]
    assert "init" in found["first"]
    named = found["environment"]
    assert named["OWN"] == "kept"
    assert named["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert not {"LD_PRELOAD", "LD_LIBRARY_PATH", "NVIDIA_DRIVER_CAPABILITIES"} & named.keys()


def test_operator_may_let_jobs_swap(tmp_path: Path) -> None:
    found = look(tmp_path, allow_swap=True)
    assert int(found["memory"]) == MEMORY
    swapped = found["both"] == str(2 * MEMORY) if found["swap"] is None else False
    assert swapped or found["swap"] == str(MEMORY)


LISTEN = """
import socket
with socket.create_server(("", 7070)) as server:
    print(socket.gethostbyname(socket.gethostname()), flush=True)
    server.accept()
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close()"


def test_jobs_do_not_reach_each_other(tmp_path: Path) -> None:
    require_docker()
    bench = Bench(docker_runner(), tmp_path)
    try:
        listens = bench.python(LISTEN)
        listens.expect(b"\n")
        address = listens.output.decode().strip()
        # Only the wall keeps jobs apart: the listener does answer the machine.
        socket.create_connection((address, 7070), 5).close()
        assert listens.result().code == 0
        with sandboxes_for(bench, 2):
            listens = bench.python(LISTEN)
            listens.expect(b"\n")
            address = listens.output.decode().strip()
            job = bench.python(CONNECT, address, "7070")
            assert job.result().code == 1
            assert b"timed out" in job.output
    finally:
        bench.close()


@contextmanager
def listening_at(address: str) -> Iterator[int]:
    """Have the machine answer at an IPv6 address for a while; yield the port."""
    place = [f"{address}/128", "dev", "lo"]
    # The machine has it once, whoever else runs these tests there.
    with Path(tempfile.gettempdir(), "forge-test-address.lock").open("w") as turn:
        flock(turn, LOCK_EX)
        subprocess.run(["ip", "-6", "address", "replace", *place, "nodad"], check=True)
        try:
            # The kernel may need a moment before it can be used.
            eventually(lambda: _served(address))
            with socket.create_server((address, 0), family=socket.AF_INET6) as server:
                yield server.getsockname()[1]
        finally:
            subprocess.run(["ip", "-6", "address", "del", *place], check=True)


def _served(address: str) -> bool:
    with suppress(OSError), socket.create_server((address, 0), family=socket.AF_INET6):
        return True
    return False


@pytest.mark.skipif(os.geteuid() != 0, reason="gives the machine another address: needs root")
def test_metadata_address_of_ipv6_is_out_of_reach(tmp_path: Path) -> None:
    require_docker()
    address = "fd00:ec2::254"
    bench = Bench(docker_runner(), tmp_path)
    try:
        with listening_at(address) as port:
            # It does answer, on the machine itself.
            socket.create_connection((address, port), 2).close()
            job = bench.python(CONNECT, address, str(port))
            assert job.result().code == 1
            assert b"OSError" in job.output
    finally:
        bench.close()
