"""Addresses and ports at which other members reach this machine, and their interface."""

import socket
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from psycopg.conninfo import conninfo_to_dict

from forge_worker.machine.locks import Locks
from forge_worker.runners.runner import StartFailed

LOOPBACK = "127.0.0.1"
# No packet is sent: the kernel only looks up the route.
ANY_PORT = 9

# Below the ports that the kernel gives to connections: one of those may be taken at any time.
FIRST, LAST = 29500, 29999
BACKLOG = 1024


def towards(queue_url: str) -> str | None:
    """Return the local address by which this machine reaches a server or a database, by its URL.

    It is the loopback's for a Unix socket, and None if there is no route now.
    """
    if queue_url.startswith(("http://", "https://")):
        host = urlsplit(queue_url).hostname or ""
    else:
        params = conninfo_to_dict(queue_url)
        # Of several hosts, any: they are alike.
        host = str(params.get("hostaddr") or params.get("host") or "").split(",")[0]
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
        if any(interface.address.partition("%")[0] == address for interface in found):
            return name
    # Every address of 127.0.0.0/8 is the loopback's.
    return interface_of(LOOPBACK) if address.startswith("127.") and address != LOOPBACK else None


def address_of(interface: str) -> str | None:
    """Return the IPv4 address of an interface; None if there is none."""
    found = psutil.net_if_addrs().get(interface, [])
    return next(
        (interface.address for interface in found if interface.family is socket.AF_INET), None
    )


def is_for_containers(address: str) -> bool:
    """Tell whether containers on the bridge, which has no IPv6, can reach such an address."""
    found = ip_address(address)
    return found.version == 4 and not found.is_loopback  # noqa: PLR2004


def to_open(*, publishes: bool) -> str:
    """Return which ports of a member the others must reach."""
    return f"TCP ports {FIRST} to {LAST}" if publishes else "TCP ports above 1023"


def listening(port: int = 0) -> socket.socket:
    """Return a socket that listens on a port at every address; 0 takes any free port.

    Raises:
        OSError: the port is taken.
    """
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
            )
    return socket.create_server(("", port), backlog=BACKLOG)


class ProgramPort:
    """A port for the program of one member; that of rank 0 is the master's.

    `held` listens on it until just before that program starts. The lock keeps other gangs of this
    machine away from it meanwhile, and until `free`.
    """

    def __init__(self, lock_dir: Path | None = None) -> None:
        self._locks = Locks(lock_dir)
        self.number, self.held = self._take()

    def free(self) -> None:
        """Close the socket and give up the lock. May be repeated."""
        self.held.close()
        self._locks.free(_name(self.number))

    def _take(self) -> tuple[int, socket.socket]:
        for number in range(FIRST, LAST + 1):
            if self._locks.take(_name(number)):
                try:
                    return number, listening(number)
                except OSError:
                    self._locks.free(_name(number))
        raise StartFailed(
            f"all ports from {FIRST} to {LAST} are taken on this machine",
            hint="each program of a gang needs one of them; `ss -tln` shows who listens",
        )


def _name(number: int) -> str:
    return f"port-{number}"
