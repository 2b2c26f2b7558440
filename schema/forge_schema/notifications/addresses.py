"""Connect to public addresses, and to none of our own networks but those that an admin allows."""

import socket
from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network
# Link-local ones, where clouds give credentials to anyone on a machine, and the others where they
# do: Azure, Oracle, Alibaba, AWS and Google. And those that are no single machine's.
NEVER: tuple[Network, ...] = (
    *map(IPv4Network, ("169.254.0.0/16", "168.63.129.16", "192.0.0.0/24", "100.100.100.200")),
    *map(IPv6Network, ("fe80::/10", "fd00:ec2::254", "fd20:ce::254")),
    *map(IPv4Network, ("0.0.0.0/8", "224.0.0.0/4")),
    *map(IPv6Network, ("::", "ff00::/8")),
)
# Addresses of IPv6 that lead to one of IPv4.
NAT64 = IPv6Network("64:ff9b::/96")
LAST_32 = 0xFFFF_FFFF


class AddressRefused(OSError):
    """None of a host's addresses may be reached."""


def networks(texts: Iterable[str]) -> list[Network]:
    """Parse networks that are to be allowed.

    Raises:
        ValueError: one is none, or nothing in it is ever reached.
    """
    found = [ip_network(text) for text in texts]
    if refused := next((one for one in found if _is_within(one, NEVER)), None):
        raise ValueError(f"{refused} is never reached: clouds give credentials there")
    return found


def may_reach(address: str, allow: Iterable[Network]) -> bool:
    """Tell whether an address is one of the public internet, or of a network that is allowed."""
    found = _inner(ip_address(address.partition("%")[0]))
    if any(found in network for network in NEVER):
        return False
    return found.is_global or any(found in network for network in allow)


def connect(host: str, port: int, timeout_s: float, *, allow: Iterable[str]) -> socket.socket:
    """Connect to the first address of a host that answers, of those that may be reached.

    The address that was checked is the one connected to: the name is resolved once.

    Args:
        host: a name or an address.
        port: the port.
        timeout_s: how long to wait for each address, and for each answer.
        allow: networks that may be reached although they are not public.

    Raises:
        AddressRefused: all are refused.
        OSError: the name is unknown, or nobody answers.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    own = networks(allow)
    allowed = [one for one in found if may_reach(str(one[4][0]), own)]
    if not allowed:
        raise AddressRefused(f"{host} has no public address, and none that an admin has allowed")
    failed: OSError | None = None
    for family, kind, protocol, _, address in allowed:
        try:
            return _connected(socket.socket(family, kind, protocol), address, timeout_s)
        except OSError as error:
            failed = error
    assert failed is not None  # noqa: S101 - there was an address, and no answer
    raise failed


def _is_within(network: Network, others: Iterable[Network]) -> bool:
    return any(
        network.network_address in other and network.broadcast_address in other for other in others
    )


def _connected(sock: socket.socket, address: object, timeout_s: float) -> socket.socket:
    try:
        sock.settimeout(timeout_s)
        sock.connect(address)  # type: ignore[arg-type]  # as the resolver returned it
    except OSError:
        sock.close()
        raise
    return sock


def _inner(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the address of IPv4 that one of IPv6 stands for, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64:
        return IPv4Address(int(address) & LAST_32)
    return address.ipv4_mapped or address.sixtofour or address
