"""Send a message to a URL: signed as Standard Webhooks has it, or in the format of Slack."""

import base64
import hmac
import json
import secrets
import ssl
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import cache
from http.client import HTTPConnection, HTTPSConnection
from importlib.metadata import version
from urllib.parse import SplitResult, urlsplit

from forge_schema.http_client import tls_context
from forge_schema.notifications.messages import Facts, line, url_of
from forge_schema.notifications.trying import DEADLINE_S, NotSent, connect, deadline, saying_why

ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})

PREFIX = "whsec_"
AGENT = f"forge/{version('forge-queue')}"
LONGEST_PAUSE_S = 3600
OK = range(200, 300)


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
    with (
        closing(connection),
        saying_why(),
        deadline(DEADLINE_S, lambda: connection.sock),
    ):
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
