"""Send a message: signed as Standard Webhooks has it, in the format of Slack, or as an e-mail."""

import base64
import hmac
import json
import secrets
import ssl
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from functools import cache
from http.client import HTTPConnection, HTTPSConnection
from importlib.metadata import version
from smtplib import SMTP, SMTP_SSL
from urllib.parse import SplitResult, unquote, urlsplit

from forge_schema.http_client import tls_context
from forge_schema.notifications.messages import Facts, line, url_of
from forge_schema.notifications.trying import (
    DEADLINE_S,
    FAILURES,
    LETTER_S,
    NotSent,
    connect,
    deadline,
    saying_why,
)
from forge_schema.proxies import is_loopback

ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})

PREFIX = "whsec_"
AGENT = f"forge/{version('forge-queue')}"
LONGEST_PAUSE_S = 3600
OK = range(200, 300)
PORTS = {"smtp": 587, "smtps": 465}


def slack_body(messages: Iterable[Facts]) -> dict[str, str]:
    """Return the body that shows messages, a line each, with links to their pages."""
    return {"text": "\n".join(map(_linked, messages))}


def _linked(message: Facts) -> str:
    text, url = line(message).translate(ESCAPES), url_of(message)
    return f"{text} (<{url}|open>)" if url else text


def new_secret() -> str:
    """Return a secret that signs webhooks."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signed(secret: str, message_id: str, now: int, body: bytes) -> dict[str, str]:
    """Return the headers by which a receiver knows the sender, the time and a repetition."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    content = f"{message_id}.{now}.".encode() + body
    digest = base64.b64encode(hmac.digest(key, content, "sha256")).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(now),
        "webhook-signature": f"v1,{digest}",
    }


def post(url: str, body: bytes, headers: Mapping[str, str], *, allow: Sequence[str]) -> None:
    """Send a body to a URL. A redirect is a failure, since nobody checked where it leads.

    Raises:
        NotSent: nobody answers in time, or the answer says that it was not accepted.
    """
    sent = {"Content-Type": "application/json", "User-Agent": AGENT, **headers}
    parts = urlsplit(url)
    connection = _connection(parts, allow)
    with closing(connection), saying_why(), deadline(DEADLINE_S, lambda: connection.sock):
        connection.request("POST", _target(parts), body, sent)
        answer = connection.getresponse()
        # It may own the socket now.
        answer.close()
    if answer.status not in OK:
        pause = answer.headers.get("Retry-After", "")
        least_s = min(int(pause), LONGEST_PAUSE_S) if pause.isascii() and pause.isdecimal() else 0
        raise NotSent(f"the receiver answered {answer.status}", least_s=least_s)


def encoded(body: object) -> bytes:
    """Return a body as JSON, the same at each try."""
    return json.dumps(body, separators=(",", ":")).encode()


class _Guarded(HTTPConnection):
    allow: Sequence[str] = ()

    def connect(self) -> None:
        self.sock = connect(self.host, self.port, DEADLINE_S, allow=self.allow)


class _GuardedTls(HTTPSConnection):
    allow: Sequence[str] = ()

    def connect(self) -> None:
        plain = connect(self.host, self.port, DEADLINE_S, allow=self.allow)
        tls = _tls().wrap_socket(plain, server_hostname=self.host, do_handshake_on_connect=False)
        # The deadline must reach it while it shakes hands.
        self.sock = tls
        tls.do_handshake()


@cache
def _tls() -> ssl.SSLContext:
    return tls_context()


def _connection(parts: SplitResult, allow: Sequence[str]) -> _Guarded | _GuardedTls:
    kind = _GuardedTls if parts.scheme == "https" else _Guarded
    connection = kind(parts.hostname or "", parts.port, timeout=DEADLINE_S)
    connection.allow = allow
    return connection


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


@dataclass(frozen=True, slots=True)
class MailServer:
    """A mail server, and the address that it sends from."""

    host: str
    port: int
    user: str
    password: str
    tls: bool
    sender: str

    @classmethod
    def of(cls, url: str, sender: str) -> "MailServer":
        """Parse `smtp://user:password@host:587`, or `smtps://…` for TLS from the start.

        Raises:
            ValueError: it is no such URL. The message does not quote it.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/"):
            raise ValueError("write a mail server as smtp://user:password@mail.example:587")
        return cls(
            host=parts.hostname,
            port=port or PORTS[parts.scheme],
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            tls=parts.scheme == "smtps",
            sender=sender,
        )


def mail(
    server: MailServer, to: str, lines: Sequence[str], links: Sequence[str], message_id: str
) -> None:
    """Send lines of text; the first is the subject. A repetition has the same Message-ID.

    Raises:
        NotSent: the server cannot be reached in time, or does not accept it.
    """
    letter = _letter(server.sender, to, lines, links, message_id)
    with saying_why():
        connection = _opened(server)
    with closing(connection), saying_why(LETTER_S), deadline(LETTER_S, lambda: connection.sock):
        _sent(connection, server, letter)


def _opened(server: MailServer) -> SMTP:
    opened = (
        SMTP_SSL(server.host, server.port, timeout=DEADLINE_S, context=tls_context())
        if server.tls
        else SMTP(server.host, server.port, timeout=DEADLINE_S)
    )
    assert opened.sock is not None  # noqa: S101 - it is connected
    opened.sock.settimeout(LETTER_S)
    return opened


def _sent(connection: SMTP, server: MailServer, letter: EmailMessage) -> None:
    connection.ehlo_or_helo_if_needed()
    if connection.has_extn("starttls"):
        connection.starttls(context=tls_context())
    if server.user:
        if not isinstance(connection.sock, ssl.SSLSocket) and not is_loopback(server.host):
            raise ValueError("the mail server offers no TLS, so the password is not sent to it")
        connection.login(server.user, server.password)
    connection.send_message(letter)
    # It has been accepted, whatever becomes of a farewell.
    with suppress(*FAILURES):
        connection.quit()


def _letter(
    sender: str, to: str, lines: Sequence[str], links: Sequence[str], message_id: str
) -> EmailMessage:
    letter = EmailMessage()
    letter["From"], letter["To"] = sender, to
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    letter["Subject"] = lines[0] + more
    letter["Message-ID"] = f"<{message_id}@{sender.rpartition('@')[2]}>"
    letter["Date"] = datetime.now(UTC)
    # So that nobody's absence is answered.
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content("\n".join([*lines, "", *links]))
    return letter
