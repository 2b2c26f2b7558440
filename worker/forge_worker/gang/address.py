"""Where other members of a gang reach this machine, as far as its operator allows gangs."""

import socket
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import psutil
from psycopg.conninfo import conninfo_to_dict

from forge_worker.machine.locks import Locks
from forge_worker.runners.docker.network import BRIDGE
from forge_worker.runners.runner import StartFailed
from forge_worker.settings.settings import WorkerSettings

LOOPBACK = "127.0.0.1"
# No packet is sent: the kernel only looks up the route.
ANY_PORT = 9

# Below the ports that the kernel gives to connections: one of those may be taken at any time.
FIRST, LAST = 29500, 29999
BACKLOG = 1024
Network = Literal["host", "ports", "none"]


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
    for name, addresses in psutil.net_if_addrs().items():
        # Link-local IPv6 addresses carry their interface after a percent sign.
        if any(interface.address.partition("%")[0] == address for interface in addresses):
            return name
    # Every address of 127.0.0.0/8 is the loopback's.
    return interface_of(LOOPBACK) if address.startswith("127.") and address != LOOPBACK else None


def address_of(interface: str) -> str | None:
    """Return the IPv4 address of an interface; None if there is none."""
    addresses = psutil.net_if_addrs().get(interface, [])
    return next(
        (interface.address for interface in addresses if interface.family is socket.AF_INET), None
    )


def is_for_containers(address: str) -> bool:
    """Tell whether containers on the bridge, which has no IPv6, can reach such an address."""
    parsed = ip_address(address)
    return parsed.version == 4 and not parsed.is_loopback  # noqa: PLR2004


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


@dataclass(frozen=True, slots=True)
class GangPolicy:
    """How this worker takes part in gangs.

    The members have the machine's own `network`, or only publish single ports, or there are none.
    `advertised` is the operator's address for the other members; by default it is the one by which
    this machine reaches the queue at `queue_url`. A member waits `patience_s` for the others. Ports
    are locked in `lock_dir`.
    """

    network: Network
    advertised: str | None = None
    queue_url: str = ""
    patience_s: float = 600.0
    lock_dir: Path | None = None

    def address(self) -> str | None:
        """Return where other members reach this machine now; None if it takes no part."""
        if self.network == "none":
            return None
        own = self.advertised or towards(self.queue_url)
        if not self.publishes or own is None or is_for_containers(own):
            return own
        # The queue and all its workers are on this machine.
        return address_of(BRIDGE) if ip_address(own).is_loopback else None

    @property
    def publishes(self) -> bool:
        """Whether a member's container is on the bridge, and publishes its port."""
        return self.network == "ports"


def gang_policy(settings: WorkerSettings, *, containers: bool) -> GangPolicy:
    """Return what the settings allow.

    Plain processes have the machine's network anyway. Where there are `containers`, the operator
    must allow that those of a gang have it too, or publish ports.
    """
    advertised = settings.advertise_address
    return GangPolicy(
        network=settings.gang_network or ("none" if containers else "host"),
        advertised=None if advertised is None else str(advertised),
        queue_url=settings.url[0] if settings.url else settings.database_url,
        patience_s=settings.gang_patience_s,
        lock_dir=settings.lock_dir,
    )
