"""Connections to a port on which a running job listens, and to nothing else.

The host is never a parameter: only the job's own loopback address is dialled. A container has it in
a network of its own. Where a job shares the machine's, the listener must be one of its processes.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import psutil
from docker.errors import DockerException

from forge_worker.runners.docker.engine import UNREACHABLE
from forge_worker.runners.docker.usage import names_container
from forge_worker.runners.engines import connected
from forge_worker.runners.entry import SESSION, Container, Entry, JobProcess, NotEntered
from forge_worker.runners.process.descendants import descendants

if TYPE_CHECKING:
    from collections.abc import Iterable

CONNECT_S = 10.0
INSPECT_S = 30
LOOPBACK4, LOOPBACK6 = "127.0.0.1", "::1"
# Where a listener is reached, by the address that it listens on.
REACHED = {"0.0.0.0": LOOPBACK4, LOOPBACK4: LOOPBACK4, "::": LOOPBACK6, LOOPBACK6: LOOPBACK6}  # noqa: S104
NEW_NETWORK = 0x40000000
# For who may not enter a container's network from outside; Python is there in nearly every image.
INSIDE = """
import os, socket, sys, threading, time
there = socket.create_connection(("localhost", int(sys.argv[1])), 10)
there.settimeout(None)
def typed():
    while data := os.read(0, 65536):
        there.sendall(data)
    there.shutdown(socket.SHUT_WR)
    time.sleep(60)
    os._exit(0)
threading.Thread(target=typed, daemon=True).start()
while data := there.recv(65536):
    while data:
        data = data[os.write(1, data):]
"""


def dial(job: Entry, port: int, mark: str) -> socket.socket:
    """Return a connection to a port of a job; `mark` begins the environments of its sessions.

    Raises:
        NotEntered: the port is not the job's, or this worker may not reach it.
        OSError: nothing answers there.
    """
    if isinstance(job, JobProcess):
        return _own(port, [job.shim, *descendants(job.shim)], mark)
    pid, hosts = _main(job)
    if hosts:
        if pid is None:
            raise NotEntered(
                "its container has the machine's network, and is not visible from here"
            )
        return _own(port, [pid, *descendants(pid)], mark)
    try:
        # In a thread of its own, which ends with this: it stays in that network.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_from_network, job, pid, port).result()
    except PermissionError:
        return _by_engine(job, port)


def _own(port: int, pids: Iterable[int], mark: str) -> socket.socket:
    """Connect to a listener on this machine that is one of a job's processes."""
    marked = (p.pid for p in psutil.process_iter(["environ"]) if _is_marked(p, mark))
    for pid in chain(pids, marked):
        if (place := _listens(pid, port)) is not None:
            return socket.create_connection((place, port), CONNECT_S)
    raise NotEntered(f"no process of the job listens on port {port} of the loopback address")


def _is_marked(process: psutil.Process, mark: str) -> bool:
    environ = process.info["environ"] or {}
    session: str = environ.get(SESSION, "")
    return session.startswith(mark)


def _listens(pid: int, port: int) -> str | None:
    """Return where a process is reached at this port; None if it does not listen there."""
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return None
    listeners = (
        connection.laddr for connection in connections if connection.status == psutil.CONN_LISTEN
    )
    places = (REACHED.get(at.ip) for at in listeners if at.port == port)
    return next(filter(None, places), None)


def _main(job: Container) -> tuple[int | None, bool]:
    """Return a container's main process, if visible from here, and whether it has our network."""
    try:
        with closing(connected(timeout=INSPECT_S)) as client:
            container = client.api.inspect_container(job.id)
    except (DockerException, *UNREACHABLE) as error:
        raise NotEntered(f"the job's container is not found: {error}") from error
    pid: int = container["State"]["Pid"]
    if not pid:
        raise NotEntered("the job's container has ended")
    hosts = container["HostConfig"]["NetworkMode"] == "host"
    return (pid if names_container(pid, job.id) else None), hosts


def _from_network(job: Container, pid: int | None, port: int) -> socket.socket:
    """Connect from inside a container's network, where this thread stays."""
    if pid is None:
        raise PermissionError
    with Path(f"/proc/{pid}/ns/net").open("rb") as network:
        # The id may have become another process's before it was opened.
        if not names_container(pid, job.id):
            raise NotEntered("the job's container has ended")
        if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), NEW_NETWORK):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    try:
        return socket.create_connection((LOOPBACK4, port), CONNECT_S)
    except ConnectionRefusedError:
        return socket.create_connection((LOOPBACK6, port), CONNECT_S)


def _by_engine(job: Container, port: int) -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        program = job.program([*job.python, INSIDE, str(port)], {}, tty=False)
        child = subprocess.Popen(  # noqa: S603 - a fixed program
            program.command,
            env=program.env,
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    Thread(target=child.wait, name="port", daemon=True).start()
    return ours
