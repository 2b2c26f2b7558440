"""A container's main process as the kernel knows it, for when the engine does not answer.

It is the first process of a process namespace: when it ends, the kernel ends everything else in
the container before it reports that end.
"""

from __future__ import annotations

import os
import select
import signal
import weakref

from forge_worker.runners.docker.cgroup import names_container

MILLISECONDS = 1000


class MainProcess:
    """Holds a descriptor of the process, so that no other process can be taken for it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def of(cls, pid: int, container: str) -> MainProcess | None:
        """Return the process of a container's id; None where it cannot be seen from here."""
        try:
            found = cls(os.pidfd_open(pid))
        except OSError:
            return None
        # An agent in a container of its own has other process ids than the engine.
        return found if names_container(pid, container) else None

    def ended(self, timeout: float = 0.0) -> bool:
        """Tell whether nothing of the container lives, waiting up to `timeout` seconds for that."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(timeout * MILLISECONDS))

    def signal(self, signum: int) -> None:
        """Send it a signal; one that has ended is fine.

        Raises:
            PermissionError: this user may not.
        """
        try:
            signal.pidfd_send_signal(self._descriptor, signum)
        except ProcessLookupError:
            return
