"""Connect to public addresses only, so that nobody reaches our own network through a webhook."""

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# Metadata of clouds at addresses that count as public: Azure's, and Oracle's for some Pythons.
PLATFORMS = (IPv4Network("168.63.129.16/32"), IPv4Network("192.0.0.0/24"))
# Addresses of IPv6 that lead to one of IPv4.
NAT64 = IPv6Network("64:ff9b::/96")
LAST_32 = 0xFFFF_FFFF


class AddressRefused(OSError):
    """None of a host's addresses may be reached."""


def is_public(address: str) -> bool:
    """Tell whether an address is one of the public internet."""
    found = _inner(ip_address(address.partition("%")[0]))
    in_platform = any(found in network for network in PLATFORMS)
    return found.is_global and not found.is_multicast and not in_platform


def connect(host: str, port: int, timeout_s: float, *, private: bool) -> socket.socket:
    """Connect to the first address of a host that answers, of those that may be reached.

    The address that was checked is the one connected to: the name is resolved once.

    Args:
        host: a name or an address.
        port: the port.
        timeout_s: how long to wait for each address, and for each answer.
        private: whether private, local and link-local addresses may be reached.

    Raises:
        AddressRefused: all are refused.
        OSError: the name is unknown, or nobody answers.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    allowed = [one for one in found if private or is_public(str(one[4][0]))]
    if not allowed:
        raise AddressRefused(f"{host} has no public address; an admin may allow private ones")
    failed: OSError | None = None
    for family, kind, protocol, _, address in allowed:
        try:
            return _connected(socket.socket(family, kind, protocol), address, timeout_s)
        except OSError as error:
            failed = error
    assert failed is not None  # noqa: S101 - there was an address, and no answer
    raise failed


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
