"""A shell inside a job through its server: this terminal's bytes travel over a WebSocket."""

import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from queue import SimpleQueue
from threading import Thread
from time import sleep
from types import FrameType
from typing import TYPE_CHECKING

from forge_schema.shell import (
    CALLER_PATH,
    PIECE_BYTES,
    STDERR,
    STDIN,
    STDOUT,
    ShellNews,
    ShellTicket,
    Terminal,
    connect,
)

from forge_client.errors import ClientError, as_client_error
from forge_client.http.transport import Transport

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

# Between tries to connect. A ticket is used up by an answer, and lasts a minute.
PAUSES_S = (0.2, 1.0)
DESCRIPTORS = {STDOUT: 1, STDERR: 2}


def terminal() -> Terminal | None:
    """Return this process's terminal, or None if its input or its output is none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    size = os.get_terminal_size(0)
    # A terminal that knows no size has 0.
    rows, columns = size.lines or 24, size.columns or 80
    return Terminal(rows=rows, columns=columns, term=os.environ.get("TERM") or "xterm")


def run(
    transport: Transport,
    ticket: ShellTicket,
    *,
    interactive: bool = False,
    pin: Callable[[str], None] = lambda _: None,
) -> int:
    """Run what a ticket is for, and return its exit code.

    `pin` is told the public key of an SSH server before its first byte.

    Raises:
        ClientError: it was not run, or the connection was lost.
    """
    # Only for shells; it takes a while to import.
    from websockets.exceptions import ConnectionClosed, InvalidHandshake  # noqa: PLC0415

    url, headers = transport.server.url, {"Authorization": f"Bearer {ticket.ticket}"}
    try:
        with as_client_error():
            opened = _opened(lambda: connect(url, CALLER_PATH, headers, transport.tls))
    except (InvalidHandshake, OSError) as error:
        raise ClientError(
            f"{url} opens no shell: {error}",
            hint="a proxy on the way must pass WebSockets on",
            code="shell_refused",
        ) from error
    try:
        with opened as socket:
            socket.send(ticket.order)
            with _raw() if interactive else nullcontext():
                return _attended(socket, pin, interactive=interactive)
    except (ConnectionClosed, OSError) as error:
        raise ClientError(
            f"the connection to worker {ticket.worker} was lost",
            hint="the command was ended; the job keeps running",
            code="shell_lost",
        ) from error


def _opened(connecting: "Callable[[], ClientConnection]") -> "ClientConnection":
    """Connect, also to a server that hangs up before it answers, as one does that is replaced."""
    from websockets.exceptions import InvalidMessage  # noqa: PLC0415 - as above

    for pause_s in PAUSES_S:
        with suppress(InvalidMessage):
            return connecting()
        sleep(pause_s)
    return connecting()


def _attended(socket: "ClientConnection", pin: Callable[[str], None], *, interactive: bool) -> int:
    if interactive:
        _follow_size(socket)
    Thread(target=_type, args=(socket,), name="stdin", daemon=True).start()
    while True:
        message = socket.recv()
        if isinstance(message, bytes):
            _write(DESCRIPTORS.get(message[:1], 1), message[1:])
            continue
        news = ShellNews.model_validate_json(message)
        if news.exit_code is not None:
            return news.exit_code
        if news.host_key:
            pin(news.host_key)
            continue
        raise ClientError(news.message, hint=news.hint, code=news.code or "not_run")


def _type(socket: "ClientConnection") -> None:
    # The connection may end at any time.
    with suppress(Exception):
        while data := os.read(0, PIECE_BYTES):
            socket.send(STDIN + data)
        socket.send(STDIN)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextmanager
def _raw() -> Iterator[None]:
    """Pass every key on, Ctrl-C too, while the block runs."""
    before = termios.tcgetattr(0)
    try:
        # What was typed ahead is kept.
        tty.setraw(0, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _follow_size(socket: "ClientConnection") -> None:
    # A signal may come while the main thread holds the connection's lock.
    changed: SimpleQueue[None] = SimpleQueue()

    def noted(_number: int, _frame: FrameType | None) -> None:
        changed.put(None)

    def tell() -> None:
        with suppress(Exception):
            while True:
                changed.get()
                socket.send(ShellNews(terminal=terminal()).text)

    signal.signal(signal.SIGWINCH, noted)
    Thread(target=tell, name="size", daemon=True).start()
