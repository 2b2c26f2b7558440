"""The network of jobs in containers: it may be `none`, and never reaches metadata addresses."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import docker
import pytest
from forge_worker.runners.docker import network
from forge_worker.runners.docker.engine import Engine
from forge_worker.runners.docker.runner import DockerPolicy, DockerRunner
from forge_worker.runners.runner import StartFailed
from support.ports import free_port
from support.workers.runners import (
    Bench,
    docker_runner,
    engine_kind,
    make_spec,
    require_docker,
    sandboxes_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker import DockerClient


@pytest.fixture
def engine() -> Iterator[DockerClient]:
    require_docker()
    client = docker.from_env()
    yield client
    client.close()


HERE = "127.0.0.1"
ANSWER = """
import socket, sys
door = socket.create_server(("", int(sys.argv[1])))
print("listens", flush=True)
while True:
    door.accept()[0].close()
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)"


@contextmanager
def listening_at(address: str) -> Iterator[int]:
    """Have the machine answer at `address` for a while; yield the port."""
    subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    try:
        with socket.create_server((address, 0)) as server:
            yield server.getsockname()[1]
    finally:
        subprocess.run(["ip", "address", "del", f"{address}/32", "dev", "lo"], check=True)


@pytest.mark.parametrize(
    ("address", "beside", "sandboxes"),
    [
        ("169.254.77.77", "198.18.77.77", 0),
        ("168.63.129.16", "198.18.77.79", 2),
        ("100.100.100.200", "198.18.77.80", 0),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="gives the machine another address: needs root")
def test_metadata_addresses_are_out_of_reach(
    bench: Bench, address: str, beside: str, sandboxes: int
) -> None:
    """One address of each, and one beside it to show that the way itself is open."""
    with (
        listening_at(address) as metadata,
        listening_at(beside) as other,
        sandboxes_for(bench, sandboxes),
    ):
        reached = bench.python(CONNECT, beside, str(other)).result()
        blocked = bench.python(CONNECT, address, str(metadata))
        assert blocked.result().code == 1
    assert reached.code == 0
    assert b"timed out" in blocked.output
    assert isinstance(bench.runner, DockerRunner)
    assert bench.runner.exposed == ""


def test_policy_can_forbid_any_network(tmp_path: Path) -> None:
    require_docker()
    bench = Bench(docker_runner(network="none"), tmp_path)
    job = bench.run("ls", "/sys/class/net")
    try:
        assert job.result().code == 0
        assert job.output == b"lo\n"
    finally:
        bench.close()


@pytest.mark.parametrize("gangs", ["host", "ports", "none"])
def test_only_a_gang_has_the_machines_network_and_only_if_allowed(
    tmp_path: Path, engine: DockerClient, gangs: Literal["host", "ports", "none"]
) -> None:
    runner = docker_runner(gangs=gangs)
    bench = Bench(runner, tmp_path)
    try:
        alone = bench.python("input()")
        assert networks_of(engine, alone.spec.name) == own_network(alone.spec.name)
        runner.sandboxes.make(str(tmp_path))
        if gangs == "host":
            member = bench.python("input()", host_network=True)
            assert networks_of(engine, member.spec.name) == {"host"}
        else:
            with pytest.raises(StartFailed, match="may not have this machine's network"):
                bench.python("input()", host_network=True)
        place = (HERE, free_port())
        if gangs == "ports":
            member = bench.python(ANSWER, str(place[1]), publishes=place)
            assert networks_of(engine, member.spec.name) == own_network(member.spec.name)
            member.expect(b"listens")
            socket.create_connection(place).close()
            member.handle.remove()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(place)
        else:
            with pytest.raises(StartFailed, match="may not publish ports"):
                bench.python("input()", publishes=place)
        assert runner.sandboxes.ready == 1
    finally:
        bench.close()
        runner.sandboxes.end(str(tmp_path))


def test_network_of_a_single_container_goes_with_it_or_is_swept(
    bench: Bench, engine: DockerClient
) -> None:
    if not engine_kind().podman:
        pytest.skip("Docker keeps the containers of one network apart")
    job = bench.run("true")
    assert [found.name for found in engine.networks.list(names=[job.spec.name])]
    job.handle.remove()
    assert engine.networks.list(names=[job.spec.name]) == []
    # As an agent leaves it that is killed before it makes the container.
    folder = uuid.uuid4().hex
    network.network_of(Engine(), f"forge-test-{folder}", folder)
    runner = bench.runner
    assert isinstance(runner, DockerRunner)
    runner.sandboxes.tidy(uuid.uuid4().hex)
    assert engine.networks.list(names=[f"forge-test-{folder}"])
    runner.sandboxes.tidy(folder)
    assert engine.networks.list(names=[f"forge-test-{folder}"]) == []


def networks_of(engine: DockerClient, name: str) -> set[str]:
    found = engine.containers.get(name).attrs
    mode = found["HostConfig"]["NetworkMode"]
    return {mode} if mode == "host" else set(found["NetworkSettings"]["Networks"])


def own_network(name: str) -> set[str]:
    return {name if engine_kind().podman else network.NETWORK}


def test_network_made_by_several_at_once_is_one(
    engine: DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"forge-test-{uuid.uuid4().hex[:8]}"
    monkeypatch.setattr(network, "NETWORK", name)
    monkeypatch.setattr(network, "BRIDGE", f"ft{name[-8:]}")
    monkeypatch.setattr(network, "block_metadata", lambda _bridge: "")
    try:
        with ThreadPoolExecutor(8) as threads:
            made = [threads.submit(make_network) for _ in range(8)]
            assert [one.result() for one in made] == [""] * 8
        assert len(engine.networks.list(names=[f"^{name}$"])) == 1
    finally:
        for found in engine.networks.list(names=[f"^{name}$"]):
            found.remove()


def make_network() -> str:
    with closing(docker.from_env()) as client:
        return network.Network().ensure(client)


def test_machine_without_iptables_is_reported_as_exposed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(network, "SYSTEM_PATH", "/nowhere")
    assert "iptables" in network.block_metadata("lo")
    assert "not on this machine" in network.block_metadata("no-such-bridge")
    assert "iptables" in network.not_blockable()


AS_NOBODY = """
import os, sys
from pathlib import Path
from forge_worker.runners.docker import network
from forge_worker.runners.docker.engine import Engine
network.MADE_BY_ROOT = Path(sys.argv[1])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(network.block_metadata("lo") or "blocked")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes nobody: needs root")
def test_worker_that_may_make_no_rules_relies_on_what_root_left() -> None:
    with tempfile.TemporaryDirectory(prefix="forge-m-") as made:
        place = Path(made)
        place.chmod(0o755)
        words = [sys.executable, "-c", AS_NOBODY, made]
        refused = subprocess.run(words, capture_output=True, text=True, check=True)
        (place / "lo").touch()
        blocked = subprocess.run(words, capture_output=True, text=True, check=True)
        os.chown(place / "lo", 65534, 65534)
        forged = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "iptables refused" in refused.stdout
    assert blocked.stdout == "blocked\n"
    assert "iptables refused" in forged.stdout


def test_no_container_starts_while_metadata_can_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_docker()
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(network, "SYSTEM_PATH", "/nowhere")
    monkeypatch.setattr(network, "MADE_BY_ROOT", tmp_path / "none")
    spec = make_spec(tmp_path, ("true",))
    with pytest.raises(StartFailed, match="metadata"):
        DockerRunner().start(spec)
    assert "metadata" in DockerRunner().obstacle()
    assert DockerRunner(DockerPolicy(network="none")).obstacle() == ""
    bench = Bench(DockerRunner(DockerPolicy(allow_metadata=True)), tmp_path)
    assert bench.start(spec).result().code == 0
    bench.close()
