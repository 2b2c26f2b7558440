"""A member's port and the address that a worker tells the others."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from forge_worker.gang import address
from forge_worker.gang import address as policies
from forge_worker.gang.address import ProgramPort, gang_policy, interface_of, local_address, towards
from forge_worker.runners.runner import StartFailed
from forge_worker.settings.settings import WorkerSettings
from pydantic import ValidationError

if TYPE_CHECKING:
    from pathlib import Path

HERE: dict[str, Any] = {"database_url": "postgresql:///db?host=/run/pg", "store_url": "file:///s"}


@pytest.fixture(autouse=True)
def own_range(monkeypatch: pytest.MonkeyPatch) -> int:
    """Give the test three ports of its own, since others may use 29500 meanwhile."""
    for first in range(23000, 29000, 3):
        with suppress(OSError):
            for port in range(first, first + 3):
                address.listening(port).close()
            monkeypatch.setattr(address, "FIRST", first)
            monkeypatch.setattr(address, "LAST", first + 2)
            return first
    raise AssertionError("no three free ports")


def test_the_first_free_port_is_taken(tmp_path: Path, own_range: int) -> None:
    with closing(socket.create_server(("127.0.0.1", own_range))):
        port = ProgramPort(tmp_path / "locks")
        assert port.number == own_range + 1
        port.free()


def test_a_gang_keeps_its_port_until_its_program_has_ended(tmp_path: Path, own_range: int) -> None:
    one = ProgramPort(tmp_path / "locks")
    # Its program starts, and does not listen yet: importing a large library takes a while.
    one.held.close()
    two = ProgramPort(tmp_path / "locks")
    assert (one.number, two.number) == (own_range, own_range + 1)
    one.free()
    three = ProgramPort(tmp_path / "locks")
    assert three.number == own_range
    for port in (one, two, three):
        port.free()


def test_a_released_port_can_be_bound_at_once(tmp_path: Path) -> None:
    port = ProgramPort(tmp_path / "locks")
    socket.create_connection(("127.0.0.1", port.number)).close()
    port.held.close()
    # Without SO_REUSEADDR: the program of a job may not set it.
    with closing(socket.socket()) as program:
        program.bind(("127.0.0.1", port.number))
        program.listen()
    port.free()


def test_without_a_free_port_the_reason_is_told(tmp_path: Path, own_range: int) -> None:
    taken = [ProgramPort(tmp_path / "locks") for _ in range(3)]
    with pytest.raises(StartFailed, match=f"{own_range} to {own_range + 2} are taken"):
        ProgramPort(tmp_path / "locks")
    for port in taken:
        port.free()


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgresql:///db?host=/run/pg", "127.0.0.1"),
        ("postgresql://localhost/db", "127.0.0.1"),
        ("postgresql://127.0.0.1:5432,10.0.0.9:5432/db", "127.0.0.1"),
        ("host=127.0.0.1 dbname=db", "127.0.0.1"),
        ("https://127.0.0.1:8000", "127.0.0.1"),
        ("http://no-such-host.invalid", None),
    ],
)
def test_the_address_is_the_one_towards_the_queue(url: str, address: str | None) -> None:
    found = towards(url)
    assert found in {address, "::1"} if "localhost" in url else found == address


def test_the_interface_of_an_address_is_found() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.7") is None
    for name, found in psutil.net_if_addrs().items():
        for one in found:
            if one.family is socket.AF_INET and name != "lo":
                assert interface_of(one.address) == name
    assert local_address("127.0.0.1") == "127.0.0.1"


def policy(*, containers: bool, **given: Any) -> str | None:  # noqa: ANN401  settings of all types
    return gang_policy(WorkerSettings(**HERE, **given), containers=containers).address()


def test_containers_take_part_only_if_the_operator_says_so() -> None:
    assert policy(containers=False) == "127.0.0.1"
    assert policy(containers=True) is None
    assert policy(containers=True, gang_network="host") == "127.0.0.1"
    assert policy(containers=False, gang_network="none", advertise_address="10.0.0.5") is None


@pytest.mark.parametrize(
    ("queue", "address"), [("127.0.0.1", "172.18.0.1"), ("10.0.0.5", "10.0.0.5"), ("fd00::5", None)]
)
def test_a_container_that_publishes_ports_needs_an_address_that_others_reach(
    monkeypatch: pytest.MonkeyPatch, queue: str, address: str | None
) -> None:
    monkeypatch.setattr(policies, "towards", lambda _: queue)
    monkeypatch.setattr(policies, "address_of", {"forge0": "172.18.0.1"}.get)
    assert policy(containers=True, gang_network="ports") == address
    for said in ("127.0.0.2", "fd00::5"):
        with pytest.raises(ValidationError, match=f"containers cannot reach {said}"):
            policy(containers=True, gang_network="ports", advertise_address=said)


def test_the_operators_address_wins() -> None:
    assert policy(containers=False, advertise_address="10.0.0.5") == "10.0.0.5"
    assert policy(containers=False, advertise_address="fd00::5") == "fd00::5"
    with pytest.raises(ValidationError):
        policy(containers=False, advertise_address="gpu-1.example")
