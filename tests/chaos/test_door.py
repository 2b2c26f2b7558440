"""A proxy does to its traffic what its faults say."""

from __future__ import annotations

import socketserver
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
from chaos.dice import dice_of
from chaos.parts.door import doors
from support.answering import answering

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.waiting import Eventually

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


@contextmanager
def counting() -> Iterator[tuple[int, list[bytes]]]:
    """Serve on a port, and record the requests."""
    asked: list[bytes] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if came := self.request.recv(1 << 16):
                asked.append(came)
                self.request.sendall(ANSWER)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    with answering(server):
        yield server.server_address[1], asked


def test_answers_and_requests_are_lost_on_their_side_and_silence_ends(
    eventually: Eventually,
) -> None:
    with counting() as (port, asked), doors(dice_of(1)) as made:
        door = made.make("one", port)
        url = f"http://127.0.0.1:{door.port}/claim"
        assert httpx.post(url, timeout=60).text == "ok"
        door.loses_answers = 1.0
        with pytest.raises(httpx.TransportError):
            httpx.post(url, timeout=60)
        assert len(asked) == 2
        door.heal()
        door.loses_requests = 1.0
        with pytest.raises(httpx.TransportError):
            httpx.post(url, timeout=60)
        assert len(asked) == 2
        assert door.lost == {"answer to /claim": 1, "request to /claim": 1}
        door.heal()
        door.silent = True
        late: list[str] = []
        thread = threading.Thread(target=lambda: late.append(httpx.post(url, timeout=60).text))
        thread.start()
        eventually(lambda: len(door.passing) == 1)
        assert (late, len(asked)) == ([], 2)
        door.heal()
        thread.join(60)
        assert (late, len(asked)) == (["ok"], 3)
