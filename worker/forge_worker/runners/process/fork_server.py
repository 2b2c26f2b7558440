"""The fork server: a small program of the agent that starts the shims of jobs as copies of itself.

A new Python takes 50 ms of CPU time and 13 MB of memory; a copy takes a fraction of both. It knows
nothing of any job: a shim gets its order over a socket of its own. If the server dies, the shims go
on, and the next job starts another server. Standard library only, run with `python -I -S`.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback

from forge_worker.runners.process import shim

# What the agent sends along with each shim's socket.
REQUEST = b"s"


def main() -> None:
    """Start a shim for each socket that comes over the one that the first argument names."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.set_inheritable(False)
    # The kernel reaps the shims, and a service manager's signals are for the agent alone.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    place = shim.title_place()
    gc.freeze()
    while (agent := _next(requests)) is not None:
        with agent:
            _start(agent, requests, place)


def _next(requests: socket.socket) -> socket.socket | None:
    """Wait for the next shim's socket; None once the agent is gone."""
    try:
        _, files, *_ = socket.recv_fds(requests, len(REQUEST), 1)
    except ConnectionError:
        return None
    if not files:
        return None
    agent = socket.socket(fileno=files[0])
    agent.set_inheritable(False)
    return agent


def _start(agent: socket.socket, requests: socket.socket, place: int | None) -> None:
    try:
        pid = os.fork()
    except OSError:
        return  # the agent sees its socket close
    if pid == 0:
        requests.close()
        code = 1
        try:
            os.setsid()
            shim.run(agent, place)
            code = 0
        except BaseException:  # noqa: BLE001  a copy of the server must end here, whatever it is
            traceback.print_exc()
        # The agent waits for it, and an interpreter takes long to leave.
        os._exit(code)


if __name__ == "__main__":
    main()
