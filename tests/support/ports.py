"""Ports that stay free while who listens there is down.

The kernel gives the ports of its own range to connections that go out, and may give ours away.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress

LOWEST, COUNT = 15_000, 17_000


def free_port() -> int:
    """Return a port of this machine at which nobody listens now, below the kernel's own."""
    while True:
        port = LOWEST + secrets.randbelow(COUNT)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
