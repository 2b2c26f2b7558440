"""Ports that stay free while their listener is down.

The kernel assigns ports of its own range to outgoing connections, and could take ours.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress

LOWEST, COUNT = 15_000, 17_000


def free_port() -> int:
    """Return an unused port of this machine, below the kernel's own range."""
    while True:
        port = LOWEST + secrets.randbelow(COUNT)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
