"""A proxy to the Docker engine that a test can close, as if the engine were restarting.

It can also refuse some requests, as an engine with a full disk does.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from typing import TYPE_CHECKING

from forge_worker.runners.engines import socket_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAULT = b'{"message": "no space left on device"}'
REFUSAL = b"HTTP/1.1 500 Error\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"


class EngineProxy:
    """Listens on its own socket and forwards everything to the engine while open.

    Requests to a path that contains `refuses` are refused, unless it is empty.
    """

    def __init__(self, path: Path) -> None:
        self.url = f"unix://{path}"
        self.refuses = b""
        # Before the environment names this proxy.
        self.engine = f"unix://{socket_path()}"
        self._path = path
        self._listener: socket.socket | None = None
        self._pairs: list[tuple[socket.socket, socket.socket]] = []

    def open(self) -> None:
        """Start accepting connections."""
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        """Refuse new connections and break the existing ones."""
        if self._listener is not None:
            self._path.unlink(missing_ok=True)
            _hang_up(self._listener)
            self._listener = None
        while self._pairs:
            for end in self._pairs.pop():
                _hang_up(end)

    def _accept(self, listener: socket.socket) -> None:
        with listener, contextlib.suppress(OSError):
            while True:
                ours = listener.accept()[0]
                engine = socket.socket(socket.AF_UNIX)
                engine.connect(self.engine.removeprefix("unix://"))
                self._pairs.append((ours, engine))
                threading.Thread(target=self._pass_on, args=(ours, engine), daemon=True).start()

    def _pass_on(self, ours: socket.socket, engine: socket.socket) -> None:
        with ours, engine, selectors.DefaultSelector() as selector, contextlib.suppress(OSError):
            selector.register(ours, selectors.EVENT_READ, (ours, engine))
            selector.register(engine, selectors.EVENT_READ, (engine, ours))
            while True:
                for key, _ in selector.select():
                    source, sink = key.data
                    if not (data := source.recv(1 << 16)):
                        return
                    if source is ours and self.refuses and self.refuses in data.partition(b"\n")[0]:
                        ours.sendall(REFUSAL % (len(FAULT), FAULT))
                    else:
                        sink.sendall(data)


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def engine_proxy(path: Path) -> Iterator[EngineProxy]:
    """Start a proxy and point DOCKER_HOST at it."""
    proxy = EngineProxy(path)
    proxy.open()
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = proxy.url
    try:
        yield proxy
    finally:
        proxy.shut()
        if before is None:
            del os.environ["DOCKER_HOST"]
        else:
            os.environ["DOCKER_HOST"] = before
