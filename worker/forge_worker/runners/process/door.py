"""The way back to a job: a socket in its folder, at which its shim waits for a later agent.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOCKET = "agent"
# How the job ended, for an agent that comes too late to hear it.
EXIT = "exit.json"
# In it: for how long no agent had been there. It is left out if the job was killed by its shim.
ALONE_S = "alone_s"


def opened(folder: Path) -> socket.socket:
    """Listen for an agent.

    Raises:
        OSError: the folder's file system has no sockets, or someone else listens there.
    """
    door = socket.socket(socket.AF_UNIX)
    try:
        with _address(folder) as address:
            door.bind(address)
        door.listen()
    except OSError:
        door.close()
        raise
    return door


def entered(folder: Path) -> socket.socket:
    """Connect to the shim of a job; `OSError` if it is gone, or lets no agent in."""
    agent = socket.socket(socket.AF_UNIX)
    try:
        with _address(folder) as address:
            agent.connect(address)
    except OSError:
        agent.close()
        raise
    return agent


@contextmanager
def _address(folder: Path) -> Iterator[str]:
    """Return a short address: a folder's own path may be too long for a socket."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{place}/{SOCKET}"
    finally:
        os.close(place)
