"""The SSH server inside a job: what it opens, and what it refuses, without a worker."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncssh
import pytest
from forge_client import tunnel
from forge_worker.runners.entry import SESSION, JobProcess, Program
from forge_worker.shells.ssh import Ssh

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from support.waiting import Eventually

LISTENS = """
import os, socket
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
while True:
    caller, _ = listening.accept()
    caller.sendall(b"here")
    caller.close()
"""
Acts: TypeAlias = "Callable[[asyncssh.SSHClientConnection], Awaitable[None]]"


def a_job(folder: Path, shim: int) -> JobProcess:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return JobProcess(Program((), env, folder, os.geteuid(), os.getegid()), shim)


def connected(job: JobProcess, ports: list[int], acts: Acts) -> None:
    """Connect to a job's server, and check that it ends with the connection."""

    async def connect(server: Ssh) -> None:
        key = asyncssh.import_public_key(server.host_key)
        known: tuple[list[asyncssh.SSHKey], list[object], list[object]] = ([key], [], [])
        options: dict[str, Any] = {
            "username": "job",
            "known_hosts": known,
            "config": None,
            "client_keys": None,
        }
        async with asyncssh.connect("job", sock=server._ours, **options) as connection:
            await acts(connection)

    server = Ssh(job, "1-test", ports)
    try:
        asyncio.run(connect(server))
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.close()


def listener(mark: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a process that listens, and return it with its port."""
    words = [sys.executable, "-S", "-c", LISTENS]
    env = {**os.environ, SESSION: mark}
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


async def said(connection: asyncssh.SSHClientConnection, port: int) -> bytes:
    reader, writer = await connection.open_connection("localhost", port)
    writer.write_eof()
    found: bytes = await reader.read()
    return found


async def refused(opening: Awaitable[object], why: str) -> None:
    with pytest.raises(asyncssh.ChannelOpenError, match=why):
        await opening


def test_only_listeners_of_the_job_are_reached(tmp_path: Path) -> None:
    job, job_port = listener("")
    session, session_port = listener("1-other.0")
    stranger, stranger_port = listener("10-other.0")

    async def acts(connection: asyncssh.SSHClientConnection) -> None:
        assert await said(connection, job_port) == b"here"
        assert await said(connection, session_port) == b"here"
        await refused(said(connection, stranger_port), "no process of the job listens on port")
        for host, port in (("169.254.169.254", 8080), (socket.gethostname(), job_port)):
            opening = connection.open_connection(host, port)
            await refused(opening, "is not a port of this job")
        await refused(connection.open_connection("localhost", 22), "is not a port of this job")
        with pytest.raises(asyncssh.ChannelListenError):
            await connection.forward_remote_port("", 0, "localhost", job_port)
        ran = await connection.run("echo $SSH_AUTH_SOCK; cd; pwd; exit 5", encoding="utf-8")
        assert (ran.stdout, ran.exit_status) == (f"\n{tmp_path}\n", 5)

    try:
        connected(a_job(tmp_path, job.pid), [], acts)
    finally:
        for process in (job, session, stranger):
            with process:
                process.kill()


def test_connection_for_ports_opens_these_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        async def acts(connection: asyncssh.SSHClientConnection) -> None:
            _, writer = await connection.open_connection("127.0.0.1", port)
            writer.close()
            await refused(connection.open_connection("127.0.0.1", port + 1), "is not a port")
            await refused(connection.run("true"), "only for ports")

        connected(a_job(tmp_path, os.getpid()), [port], acts)


def test_what_a_session_leaves_behind_ends_with_the_connection(
    tmp_path: Path, eventually: Eventually
) -> None:
    async def acts(connection: asyncssh.SSHClientConnection) -> None:
        started = await connection.run("sleep 86393 & echo $!", encoding="utf-8")
        left.append(int(str(started.stdout)))
        os.kill(left[0], 0)
        assert (await connection.run("echo on", encoding="utf-8")).stdout == "on\n"

    left: list[int] = []
    connected(a_job(tmp_path, os.getpid()), [], acts)
    # One that nobody has waited for yet has no command line.
    words = Path(f"/proc/{left[0]}/cmdline")
    eventually(lambda: not words.exists() or not words.read_bytes())


@pytest.mark.parametrize(
    ("name", "reaches"),
    [("job-7", 1), ("job-7-1", 1), ("job-7;x", 0), ("job-7$x", 0), ("job-7`x`", 0), ("job-7|x", 0)],
)
def test_ssh_gives_a_shell_no_name_that_would_start_something(
    tmp_path: Path, name: str, reaches: int
) -> None:
    file = tmp_path / "config"
    file.write_text(tunnel.config(["forge"]) + "\n")
    told = subprocess.run(
        ["ssh", "-G", "-F", file, name], capture_output=True, text=True, check=False
    )
    assert told.stdout.count("proxycommand forge ssh") == reaches
