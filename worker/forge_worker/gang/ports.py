"""A member's port: 29500, or the next one that is free on this machine."""

import socket
from contextlib import suppress
from pathlib import Path

from forge_worker.machine.locks import Locks
from forge_worker.runners.runner import StartFailed

# Below the ports that the kernel gives to connections: one of those may be taken at any time.
FIRST, LAST = 29500, 29999
BACKLOG = 1024


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
