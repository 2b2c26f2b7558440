"""The check of the network, on real sockets of this machine."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from contextlib import ExitStack, closing
from dataclasses import replace
from shutil import which
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from forge_worker.gang import preflight
from forge_worker.gang.address import listening
from forge_worker.gang.members import Gang, Peer
from forge_worker.gang.preflight import PreflightAnswers, PreflightFailed, check, probe
from support.gangs.peers import NONCE, peer
from support.services import require

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = "127.0.0.1"
OTHER = "f" * 32
NAMESPACE = "forge-gang-t"
REPLACE = f"ip netns exec {NAMESPACE} iptables -R INPUT 1 -p tcp -j"


@pytest.fixture
def answering() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def served(stack: ExitStack, rank: int, nonce: str = NONCE) -> Peer:
    """Return a member that answers on this machine; rank 0 on its master's port too."""
    sockets = [listening() for _ in range(1 if rank else 2)]
    stack.enter_context(closing(PreflightAnswers(nonce, sockets)))
    ports = [one.getsockname()[1] for one in sockets]
    master_port = None if rank else ports[1]
    return peer(rank, address=HERE, port=ports[0], nonce=nonce, master_port=master_port)


def closed_port() -> int:
    with socket.create_server((HERE, 0)) as gone:
        return int(gone.getsockname()[1])


def test_members_that_reach_each_other_pass(answering: ExitStack) -> None:
    members = [served(answering, rank, nonce=f"{rank}" * 32) for rank in range(3)]
    for rank in range(3):
        check(Gang(rank, members))


def test_a_closed_port_is_refused_and_both_machines_are_named(answering: ExitStack) -> None:
    master = served(answering, 0)
    port = closed_port()
    gang = Gang(0, [master, served(answering, 1), peer(2, address=HERE, port=port)])
    with pytest.raises(PreflightFailed) as failed:
        check(gang)
    assert failed.value.message == (
        "rank 0 (worker gpu-0, 127.0.0.1) cannot reach rank 2 (worker gpu-2, 127.0.0.1),"
        f" port {port}: the connection was refused"
    )
    assert failed.value.hint is not None
    assert "gpu-2 (--advertise-address)" in failed.value.hint


def test_a_member_tries_the_port_of_the_masters_program_too(answering: ExitStack) -> None:
    master = served(answering, 0)
    port = closed_port()
    moved = peer(0, address=HERE, port=master.port, master_port=port)
    with pytest.raises(PreflightFailed, match=f"port {port}: the connection was refused"):
        check(Gang(1, [moved, peer(1, address=HERE)]))


@pytest.mark.parametrize("address", [HERE, "::1"])
def test_an_address_that_no_container_reaches_is_refused(
    answering: ExitStack, address: str
) -> None:
    master = replace(served(answering, 0), address=address)
    with pytest.raises(PreflightFailed, match="a container on a bridge cannot connect") as failed:
        check(Gang(1, [master, peer(1, publishes=True)]))
    assert failed.value.hint == (
        "have gpu-0 advertise an IPv4 address that gpu-1 can reach (--advertise-address)"
    )


def test_another_program_or_gang_at_the_address_is_noticed(answering: ExitStack) -> None:
    stranger = served(answering, 1, nonce=OTHER)
    believed = peer(1, address=HERE, port=stranger.port, nonce=NONCE)
    found = probe(believed, believed.port)
    assert found is not None
    assert found.why == preflight.STRANGER


def test_a_connection_that_carries_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "TRANSFER_S", 0.2)
    with closing(socket.create_server((HERE, 0))) as silent:
        port = silent.getsockname()[1]
        found = probe(peer(1, address=HERE, port=port), port)
    assert found is not None
    assert found.why == preflight.STUCK


def test_a_firewall_that_drops_is_told_from_one_that_rejects(
    monkeypatch: pytest.MonkeyPatch, namespaces: str
) -> None:
    monkeypatch.setattr(preflight, "CONNECT_S", 0.5)
    gang = Gang(1, [peer(0, address=namespaces), peer(1, address="10.231.7.1")])
    with pytest.raises(PreflightFailed) as failed:
        check(gang)
    assert f"(worker gpu-0, {namespaces}), port 29500: the connection timed out" in str(
        failed.value.message
    )
    assert failed.value.hint == (
        f"open all TCP ports above 1023 from 10.231.7.1 to {namespaces} and back: training"
        " libraries listen on ports of their own choice"
    )
    with pytest.raises(PreflightFailed) as failed:
        check(Gang(1, [replace(gang.master, publishes=True), gang.own]))
    assert failed.value.hint == (
        f"open TCP ports 29500 to 29999 from 10.231.7.1 to {namespaces}, which publishes only"
        " ports of this range (--gang-network ports)"
    )
    subprocess.run(f"{REPLACE} REJECT --reject-with icmp-host-prohibited".split(), check=True)
    with pytest.raises(PreflightFailed, match="port 29500: no route to host") as failed:
        check(gang)
    assert failed.value.hint == (
        f"check that {namespaces} is an address of gpu-0 that gpu-1 can reach"
        " (--advertise-address), that gpu-0 is up, and that no firewall there rejects 10.231.7.1:"
        " firewalld, for one, answers like this"
    )


def test_a_network_that_a_machine_is_not_in_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_args: object, **_more: object) -> None:
        raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))

    # A machine without a default route is not at hand.
    monkeypatch.setattr(socket, "create_connection", unreachable)
    with pytest.raises(PreflightFailed, match="port 29500: network is unreachable") as failed:
        check(Gang(1, [peer(0), peer(1)]))
    assert failed.value.hint == (
        "gpu-1 has no route to 10.0.0.5: have gpu-0 advertise an address in a network that both"
        " machines are in (--advertise-address)"
    )


@pytest.fixture
def namespaces() -> Iterator[str]:
    """Join this machine to a network namespace that drops every packet; yield its address."""
    require(os.geteuid() == 0 and which("ip") and which("iptables"), "root with ip and iptables")
    name, here, there = NAMESPACE, "fgt0", "fgt1"
    commands = [
        f"ip netns add {name}",
        f"ip link add {here} type veth peer name {there} netns {name}",
        f"ip addr add 10.231.7.1/30 dev {here}",
        f"ip link set {here} up",
        f"ip -n {name} addr add 10.231.7.2/30 dev {there}",
        f"ip -n {name} link set {there} up",
        f"ip netns exec {name} iptables -A INPUT -p tcp -j DROP",
    ]
    done = [
        subprocess.run(one.split(), capture_output=True, check=False).returncode for one in commands
    ]
    try:
        assert not any(done), list(zip(commands, done, strict=True))
        yield "10.231.7.2"
    finally:
        subprocess.run(f"ip netns del {name}".split(), check=False, capture_output=True)


def test_many_members_connect_at_once(answering: ExitStack) -> None:
    master = served(answering, 0)
    members = [master, *(peer(rank, address=HERE) for rank in range(1, 40))]
    failures: list[PreflightFailed] = []

    def reach(rank: int) -> None:
        try:
            check(Gang(rank, members))
        except PreflightFailed as error:
            failures.append(error)

    threads = [Thread(target=reach, args=(rank,)) for rank in range(1, 40)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failures == []
