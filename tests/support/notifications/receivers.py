"""Receivers of notifications: a real web server and a real mail server, which may misbehave."""

from __future__ import annotations

import json
import socketserver
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event
from typing import TYPE_CHECKING, Any

from support.answering import answering

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass
class Call:
    """A request that arrived."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass
class Receiver:
    """What arrived at a web server, and how it answers the next requests."""

    url: str = ""
    calls: list[Call] = field(default_factory=list)
    # The status of the next answers, then 204; and their headers.
    answers: list[int] = field(default_factory=list)
    more: dict[str, str] = field(default_factory=dict)
    # While it is not set, the server answers nobody.
    awake: Event = field(default_factory=Event)

    @property
    def ids(self) -> list[str]:
        return [call.headers["webhook-id"] for call in self.calls]

    @property
    def types(self) -> list[str]:
        return [call.message["type"] for call in self.calls]


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Yield a web server on this machine that accepts what it is sent."""
    told = Receiver()
    told.awake.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.calls.append(Call(self.path, dict(self.headers.items()), body))
            told.awake.wait()
            self.send_response(told.answers.pop(0) if told.answers else 204)
            for name, value in told.more.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_address[1]}/hook?team=a"
    with answering(server):
        try:
            yield told
        finally:
            told.awake.set()


@dataclass
class Mailbox:
    """The letters that arrived at a mail server, and what it answers to the next ones.

    `refusals` are its answers to recipients, `verdicts` those to letters.
    """

    url: str = ""
    letters: list[str] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    refusals: list[bytes] = field(default_factory=list)
    verdicts: list[bytes] = field(default_factory=list)
    # While it is not set, no letter is answered.
    awake: Event = field(default_factory=Event)


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    """Yield a mail server on this machine that speaks what SMTP needs."""
    box = Mailbox()
    box.awake.set()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while said := self.rfile.readline().strip():
                self.wfile.write(self._answer(said))

        def _answer(self, said: bytes) -> bytes:
            match said.split(b" ")[0].upper():
                case b"EHLO":
                    return b"250-here\r\n250 AUTH PLAIN\r\n"
                case b"AUTH":
                    box.logins.append(said.decode())
                    return b"235 welcome\r\n"
                case b"RCPT":
                    box.recipients.append(said.decode())
                    return box.refusals.pop(0) if box.refusals else b"250 ok\r\n"
                case b"DATA":
                    self.wfile.write(b"354 go\r\n")
                    box.letters.append(b"".join(iter(self.rfile.readline, b".\r\n")).decode())
                    box.awake.wait()
                    return box.verdicts.pop(0) if box.verdicts else b"250 kept\r\n"
                case b"QUIT":
                    return b"221 bye\r\n"
            return b"250 ok\r\n"

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    box.url = f"smtp://ann:pa%3Ass@127.0.0.1:{server.server_address[1]}"
    with answering(server):
        try:
            yield box
        finally:
            box.awake.set()
