"""A TCP proxy between a worker and a server, which a test may cut or delay."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAM = b"text/event-stream"


class TcpProxy:
    """Forwards everything; with `holds_streams`, event streams never arrive."""

    def __init__(self, target: str) -> None:
        self._target = int(urlsplit(target).port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.holds_streams = False
        self.connections = 0
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """Break every connection."""
        while self._ends:
            _hang_up(self._ends.pop())

    def close(self) -> None:
        """Break every connection, and accept no more."""
        _hang_up(self._listener)
        self._threads[0].join(60)
        self.cut()
        for thread in self._threads:
            thread.join(60)

    def _accept(self) -> None:
        with self._listener, contextlib.suppress(OSError):
            while True:
                ours = self._listener.accept()[0]
                self.connections += 1
                theirs = socket.create_connection(("127.0.0.1", self._target))
                self._ends += [ours, theirs]
                thread = threading.Thread(target=self._pass_on, args=(ours, theirs))
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, ours: socket.socket, theirs: socket.socket) -> None:
        held = False
        with ours, theirs, selectors.DefaultSelector() as selector, contextlib.suppress(OSError):
            selector.register(ours, selectors.EVENT_READ, theirs)
            selector.register(theirs, selectors.EVENT_READ, ours)
            while True:
                for key, _ in selector.select():
                    source, sink = key.fileobj, key.data
                    assert isinstance(source, socket.socket)
                    if not (data := source.recv(1 << 16)):
                        return
                    answers = source is theirs
                    held = held or (answers and self.holds_streams and STREAM in data)
                    if not (answers and held):
                        sink.sendall(data)


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def tcp_proxy(target: str) -> Iterator[TcpProxy]:
    """Run a proxy in front of a server on loopback."""
    proxy = TcpProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
