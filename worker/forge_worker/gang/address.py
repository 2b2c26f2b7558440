"""Addresses: the one at which other members reach this machine, and the interface that has it."""

import socket
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

import psutil
from psycopg.conninfo import conninfo_to_dict

LOOPBACK = "127.0.0.1"
# No packet is sent: the kernel only looks up the route.
ANY_PORT = 9


def towards(queue_url: str) -> str | None:
    """Return the local address by which this machine reaches a server or a database, by its URL.

    It is the loopback's for a Unix socket, and None if there is no route now.
    """
    if queue_url.startswith(("http://", "https://")):
        host = urlsplit(queue_url).hostname or ""
    else:
        said = conninfo_to_dict(queue_url)
        # Of several hosts, any: they are alike.
        host = str(said.get("hostaddr") or said.get("host") or "").split(",")[0]
    return LOOPBACK if not host or host.startswith("/") else local_address(host)


def local_address(host: str) -> str | None:
    """Return the local address from which packets to a host are sent; None without a route."""
    with suppress(OSError):
        for family, kind, _, _, target in socket.getaddrinfo(
            host, ANY_PORT, type=socket.SOCK_DGRAM
        ):
            with suppress(OSError), socket.socket(family, kind) as looking:
                looking.connect(target)
                return str(looking.getsockname()[0])
    return None


def interface_of(address: str) -> str | None:
    """Return the name of the interface that has an address; None if there is none."""
    for name, found in psutil.net_if_addrs().items():
        # Link-local IPv6 addresses carry their interface after a percent sign.
        if any(one.address.partition("%")[0] == address for one in found):
            return name
    # Every address of 127.0.0.0/8 is the loopback's.
    return interface_of(LOOPBACK) if address.startswith("127.") and address != LOOPBACK else None


def address_of(interface: str) -> str | None:
    """Return the IPv4 address of an interface; None if there is none."""
    found = psutil.net_if_addrs().get(interface, [])
    return next((one.address for one in found if one.family is socket.AF_INET), None)


def is_for_containers(address: str) -> bool:
    """Tell whether containers on the bridge, which has no IPv6, can reach such an address."""
    found = ip_address(address)
    return found.version == 4 and not found.is_loopback  # noqa: PLR2004
