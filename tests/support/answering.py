"""A server of a test, in a thread of its own."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socketserver import BaseServer


@contextmanager
def answering(server: BaseServer) -> Iterator[None]:
    """Have a server answer until the block ends, and close it."""
    with server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
