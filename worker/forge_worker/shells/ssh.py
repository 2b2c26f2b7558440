"""An SSH server inside a job, for one connection: ssh, scp, rsync and editors of the job's owner.

It speaks over one end of a socket pair, whose other end the caller's bytes come through; nothing
listens. Whoever is at the other end has shown a ticket, so no password or key is asked for. SSH
gives every session and every port a window of its own, so that none holds up another.
"""

import asyncio
import os
import select
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib.resources import files
from itertools import count
from threading import Event, Thread
from typing import TypeVar, cast

import asyncssh
from asyncssh.forward import SSHForwarder
from forge_schema.model.errors import ForgeError
from forge_schema.proxies import is_loopback
from forge_schema.shell import PIECE_BYTES, STDERR, STDOUT, Terminal
from pydantic import ValidationError

from forge_worker.runners.dial import dial
from forge_worker.runners.entry import Entry
from forge_worker.shells.command import ShellCommand, kill_marked

T = TypeVar("T")
LOWEST_PORT = 1024
# Sessions and ports of one connection at a time.
MOST = 64
LOGIN_S, END_S = 30.0, 10.0
# How soon a session is over whose command has left others behind that hold its output open.
LOOK_S = 1.0
# Pieces of input that may wait for a slow command.
PIECES = 16
SHELL = 'exec "$(command -v bash || command -v sh)"'
SFTP = 'command -v "$0" >/dev/null || { echo "scp needs python3 in the image" >&2; exit 127; }'


class Ssh:
    """A server in a thread of its own, used like a `Command`; `host_key` is its public key.

    Args:
        job: where its sessions run.
        mark: begins the marks of what they start.
        ports: serve nothing but connections to these; all of the job's ports, and sessions, if
            there are none.
    """

    def __init__(self, job: Entry, mark: str, ports: list[int]) -> None:
        self.job, self.mark, self.ports = job, mark, ports
        # Those that run; the descriptors of others are closed.
        self.commands: set[ShellCommand] = set()
        self.streams = 0
        self._numbers = count()
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self.host_key = self._key.export_public_key().decode().strip()
        self._ours, self._theirs = socket.socketpair()
        self.outputs = {STDOUT: self._ours.fileno()}
        self._threads = ThreadPoolExecutor(4 * MOST, thread_name_prefix=f"ssh {mark}")
        self._thread = Thread(target=self._run, name=f"ssh {mark}", daemon=True)
        self._thread.start()

    def type(self, data: bytes) -> None:
        """Pass on what the caller sent; no data is its end."""
        with suppress(OSError):
            if data:
                self._ours.sendall(data)
            else:
                self._ours.shutdown(socket.SHUT_WR)

    def resize(self, terminal: Terminal) -> None:
        """Do nothing: terminals are the sessions'."""

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return 0 once the connection is over, or None if it is not after `timeout_s` seconds."""
        self._thread.join(timeout_s)
        return None if self._thread.is_alive() else 0

    def kill(self) -> None:
        """End the connection, and all that its sessions have started."""
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        kill_marked(self.mark)
        self._thread.join(END_S)

    def close(self) -> None:
        """Close the descriptors, once nobody reads them."""
        self._ours.close()
        for command in self.commands:
            command.close()

    def started(self, words: list[str], terminal: Terminal | None) -> ShellCommand:
        """Start a command in the job, with a mark of its own below this connection's."""
        command = ShellCommand(self.job, words, f"{self.mark}.{next(self._numbers)}", terminal)
        self.commands.add(command)
        return command

    def ended(self, command: ShellCommand) -> None:
        """Close the descriptors of a command that has ended."""
        self.commands.discard(command)
        command.close()

    def in_thread(self, blocking: Callable[..., T], *args: object) -> "asyncio.Future[T]":
        """Run what blocks, beside this connection's loop."""
        return asyncio.get_running_loop().run_in_executor(self._threads, partial(blocking, *args))

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._theirs.close()
            self._threads.shutdown(wait=False)

    async def _serve(self) -> None:
        with suppress(OSError, asyncssh.Error):
            connection = await asyncssh.run_server(
                self._theirs,
                server_factory=partial(Door, self),
                server_host_keys=[self._key],
                encoding=None,
                line_editor=False,
                agent_forwarding=False,
                x11_forwarding=False,
                compression_algs=None,
                gss_host=None,
                login_timeout=LOGIN_S,
            )
            await connection.wait_closed()


class Door(asyncssh.SSHServer):
    """Says what the caller may open."""

    def __init__(self, ssh: Ssh) -> None:
        self._ssh = ssh

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002  the ticket has said it
        """Ask for nothing."""
        return False

    def session_requested(self) -> "SshSession":
        """Open a session, unless the connection is only for ports."""
        if self._ssh.ports or len(self._ssh.commands) >= MOST:
            raise _refused("this connection is only for ports, or has too many sessions")
        return SshSession(self._ssh)

    def connection_requested(
        self,
        dest_host: str,
        dest_port: int,
        orig_host: str,  # noqa: ARG002  the caller's own
        orig_port: int,  # noqa: ARG002  as above
    ) -> "Awaitable[asyncssh.SSHTCPSession[bytes]]":
        """Connect to a port of the job."""
        wanted = self._ssh.ports or [dest_port]
        if not is_loopback(dest_host) or dest_port < LOWEST_PORT or dest_port not in wanted:
            raise _refused(f"{dest_host}:{dest_port} is not a port of this job, from 1024")
        if self._ssh.streams >= MOST:
            raise _refused(f"{MOST} connections to ports are open already")
        return self._connected(dest_port)

    async def _connected(self, port: int) -> "asyncssh.SSHTCPSession[bytes]":
        ssh, loop = self._ssh, asyncio.get_running_loop()
        ssh.streams += 1
        try:
            job_side = await ssh.in_thread(dial, ssh.job, port, f"{ssh.mark.partition('-')[0]}-")
            job_side.setblocking(False)  # noqa: FBT003  its name says what it sets
            _, peer = await loop.create_connection(partial(Stream, ssh), sock=job_side)
        except (ForgeError, OSError) as error:
            ssh.streams -= 1
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from None
        # As the library itself does: it has what a session has.
        return cast("asyncssh.SSHTCPSession[bytes]", SSHForwarder(peer))


class Stream(SSHForwarder):
    """The job's side of a connection to one of its ports."""

    def __init__(self, ssh: Ssh) -> None:
        super().__init__()
        self._ssh = ssh

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it out."""
        self._ssh.streams -= 1
        super().connection_lost(exc)


class SshSession(asyncssh.SSHServerSession[bytes]):
    """One command in the job, as `forge exec` runs it."""

    def __init__(self, ssh: Ssh) -> None:
        self._ssh = ssh
        self._terminal: Terminal | None = None
        self._command: ShellCommand | None = None
        self._typed: asyncio.Queue[bytes] = asyncio.Queue()
        self._writable = asyncio.Event()
        self._writable.set()
        self._ended = Event()

    def connection_made(self, chan: "asyncssh.SSHServerChannel[bytes]") -> None:
        """Keep the channel."""
        self._channel = chan

    def pty_requested(
        self,
        term_type: str,
        term_size: tuple[int, int, int, int],
        term_modes: object,  # noqa: ARG002  a fresh terminal's are good
    ) -> bool:
        """Note the terminal."""
        self._terminal = _terminal(term_type, *term_size[:2])
        return True

    def shell_requested(self) -> bool:
        """Allow it."""
        return True

    def exec_requested(self, command: str) -> bool:  # noqa: ARG002  the channel keeps it
        """Allow it."""
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        """Allow transfers of files, which scp is too."""
        return subsystem == "sftp"

    def session_started(self) -> None:
        """Run the command."""
        self._running = asyncio.create_task(self._run())

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:  # noqa: ARG002  characters are enough
        """Follow the caller's window."""
        if self._command is not None and self._terminal is not None:
            self._command.resize(_terminal(self._terminal.term, width, height))

    def data_received(self, data: bytes, datatype: int | None) -> None:  # noqa: ARG002  there is one
        """Keep input for the command, and let its sender wait if that is slow."""
        self._typed.put_nowait(data)
        if self._typed.qsize() >= PIECES:
            self._channel.pause_reading()

    def eof_received(self) -> bool:
        """Pass the end of the input on, and keep the output open."""
        self._typed.put_nowait(b"")
        return True

    def pause_writing(self) -> None:
        """Read no more of the command's output for now."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Read on."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  it is over either way
        """End a command whose caller has gone."""
        self._writable.set()
        if self._command is not None and not self._running.done():
            self._ssh.in_thread(self._command.kill)

    async def _run(self) -> None:
        ssh = self._ssh
        try:
            command = await ssh.in_thread(ssh.started, self._words(), self._terminal)
        except (ForgeError, OSError) as error:
            self._channel.write_stderr(f"{error}\n".encode())
            self._channel.exit(126)
            return
        self._command = command
        typing = asyncio.create_task(self._type(command))
        outputs = [asyncio.create_task(self._show(*output)) for output in command.outputs.items()]
        code = await ssh.in_thread(command.wait)
        self._ended.set()
        await asyncio.gather(*outputs)
        typing.cancel()
        ssh.ended(command)
        self._channel.exit(code or 0)

    def _words(self) -> list[str]:
        if self._channel.get_subsystem() is not None:
            program = (files("forge_worker.inside") / "sftp.py").read_text()
            python, *options = self._ssh.job.python
            return ["sh", "-c", f'{SFTP}; exec "$0" "$@"', python, *options, program]
        return ["sh", "-c", self._channel.get_command() or SHELL]

    async def _type(self, command: ShellCommand) -> None:
        while True:
            data = await self._typed.get()
            if self._typed.qsize() < PIECES:
                self._channel.resume_reading()
            await self._ssh.in_thread(command.type, data)

    async def _show(self, stream: bytes, descriptor: int) -> None:
        kind = asyncssh.EXTENDED_DATA_STDERR if stream == STDERR else None
        with suppress(OSError):
            while data := await self._ssh.in_thread(self._read, descriptor):
                await self._writable.wait()
                self._channel.write(data, kind)

    def _read(self, descriptor: int) -> bytes:
        """Return output; nothing once the command has ended, even if it left others behind."""
        while not select.select([descriptor], [], [], LOOK_S)[0]:
            if self._ended.is_set():
                return b""
        return os.read(descriptor, PIECE_BYTES)


def _refused(why: str) -> asyncssh.ChannelOpenError:
    return asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, why)


def _terminal(term: str, columns: int, rows: int) -> Terminal:
    try:
        return Terminal(rows=rows or 24, columns=columns or 80, term=term)
    except ValidationError:
        return Terminal(rows=24, columns=80)
