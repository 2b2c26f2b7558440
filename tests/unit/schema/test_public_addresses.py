"""A webhook reaches public addresses only, and the one that was checked."""

from __future__ import annotations

import socket

import pytest
from forge_schema.notifications import trying
from forge_schema.notifications.trying import AddressRefused, connect, may_reach, networks

PRIVATE = [
    "127.0.0.1", "127.8.8.8", "10.0.0.5", "172.16.3.4", "192.168.1.1", "169.254.169.254", "0.0.0.1",
    "100.100.100.200", "192.0.0.192", "168.63.129.16", "224.0.0.1", "255.255.255.255", "198.18.0.1",
    "::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fc00::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:db8::1",
    "::7f00:1", "::a00:5", "::ffff:0:a00:5", "64:ff9b:1::a00:5", "64:ff9b:1:a00:0:500:808:808",
    "64:ff9b:1:808:8:800:a00:5", "fec0::1", "2606:4700::5efe:a00:5", "2606:4700::200:5efe:a00:5",
    "2001:0:7f00:1::f7f7:f7f7", "2001:0:808:808::80ff:fffe",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_of_our_own_networks_is_not_public(address: str) -> None:
    assert not may_reach(address, [])


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8", "::808:808"]
)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert may_reach(address, [])


def test_a_network_that_is_allowed_is_reached_but_for_what_clouds_keep_there() -> None:
    for allowed, address, reached in (
        ("10.0.0.0/8", "10.0.0.5", True),
        ("10.0.0.0/8", "192.168.1.1", False),
        ("10.0.0.0/8", "::ffff:10.0.0.5", True),
        ("fd00::/8", "fd12::1", True),
        ("0.0.0.0/0", "127.0.0.1", True),
        ("0.0.0.0/0", "169.254.169.254", False),
        ("0.0.0.0/0", "168.63.129.16", False),
        ("fd00::/8", "fd00:ec2::254", False),
        ("::/0", "fe80::1%eth0", False),
    ):
        assert may_reach(address, networks([allowed])) is reached


def test_the_name_is_resolved_once_and_its_private_addresses_are_passed_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def resolved(host: str, port: int, **_: object) -> list[object]:
        asked.append(host)
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, (address, port)) for address in ("169.254.169.254", "10.9.0.1")]

    monkeypatch.setattr("socket.getaddrinfo", resolved)
    monkeypatch.setattr(trying, "_connected", lambda *_: pytest.fail("it connected"))
    with pytest.raises(AddressRefused, match=r"rebind\.example has no public address"):
        connect("rebind.example", 80, 1.0, allow=["10.0.0.0/16"])
    assert asked == ["rebind.example"]


def test_the_connection_is_made_to_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(trying, "may_reach", lambda address, _: address == "127.0.0.1")
        with connect("localhost", port, 5.0, allow=[]) as sock:
            assert sock.getpeername() == ("127.0.0.1", port)
