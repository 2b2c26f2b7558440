"""HTTP/1.1 over one connection: requests with JSON, and answers that say that all went well."""

import json
import socket
from collections.abc import Mapping
from datetime import datetime
from typing import IO, Any

CONNECT_S, ANSWER_S = 5.0, 30.0
JSON = {"Content-Type": "application/json"}
PORTS = {"http": 80, "https": 443}
# Of a header or a status; a longer one is nobody's that speaks this language.
LINE_BYTES = 1 << 16
UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class NotPlain(Exception):
    """The whole client has to do this: the message says why."""


class Wire:
    """A connection to one server, opened by the first request.

    Args:
        url: `http://…` or `https://…`, with the path under which it is served, if any.
        headers: sent with every request.
        patience_s: the longest silence of the server, in seconds.
    """

    def __init__(self, url: str, headers: Mapping[str, str], patience_s: float = ANSWER_S) -> None:
        self._scheme, _, rest = url.partition("://")
        self._host, slash, path = rest.partition("/")
        self._base = slash + path
        self._headers = {"Host": self._host, "User-Agent": "forge", **headers}
        self._patience_s = patience_s
        self._socket: socket.socket | None = None
        self._answers: IO[bytes] | None = None

    def json(
        self,
        method: str,
        path: str,
        params: Mapping[str, object] | None = None,
        body: object = None,
    ) -> Any:  # noqa: ANN401 - any JSON
        """Send a request, and return the answer's JSON; parameters that are None are left out.

        Raises:
            NotPlain: there is no such answer.
        """
        content = None if body is None else json.dumps(body).encode()
        answer = self.ask(method, f"{path}{_query(params or {})}", content)
        try:
            return json.loads(answer)
        except ValueError as error:
            raise NotPlain("the answer is not JSON") from error

    def ask(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] = JSON
    ) -> bytes:
        """Send a request, and return the body of its answer.

        Raises:
            NotPlain: there is no answer, or it is no success.
        """
        try:
            answers = self._answers or self._open()
            self._send(method, target, body, headers)
            about = _headers(answers)
            content = _body(answers, about)
        except (NotPlain, OSError, ValueError) as error:
            self.close()
            raise NotPlain(str(error)) from error
        if about.get("connection") == "close":
            self.close()
        return content

    def close(self) -> None:
        """Close the connection."""
        for opened in (self._answers, self._socket):
            if opened is not None:
                opened.close()
        self._socket = self._answers = None

    def _open(self) -> IO[bytes]:
        host, colon, port = self._host.rpartition(":")
        if not colon or host.endswith(":") or not port.isdecimal():
            host, port = self._host, str(PORTS[self._scheme])
        plain = socket.create_connection(
            (host.strip("[]"), int(port)), min(CONNECT_S, self._patience_s)
        )
        plain.settimeout(self._patience_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = _encrypted(plain, host) if self._scheme == "https" else plain
        self._answers = self._socket.makefile("rb")
        return self._answers

    def _send(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> None:
        sent = dict(self._headers)
        if body is not None:
            sent |= {**headers, "Content-Length": str(len(body))}
        lines = [f"{method} {self._base}{target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in sent.items()]
        assert self._socket is not None  # noqa: S101 - opened by `ask`
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))


def _encrypted(plain: socket.socket, host: str) -> socket.socket:
    # It takes a while to import.
    import ssl  # noqa: PLC0415

    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


def quoted(text: str) -> str:
    """Return a text as it stands in a path or a query."""
    return "".join(chr(byte) if byte in UNRESERVED else f"%{byte:02X}" for byte in text.encode())


def _query(params: Mapping[str, object]) -> str:
    pairs = [
        (name, item)
        for name, value in params.items()
        for item in (value if isinstance(value, list | tuple) else [value])
        if item is not None
    ]
    query = "&".join(f"{name}={quoted(_text(value))}" for name, value in pairs)
    return f"?{query}" if query else ""


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _headers(answers: IO[bytes]) -> dict[str, str]:
    """Return the headers of a success."""
    version, _, rest = _line(answers).partition(" ")
    if not version.startswith("HTTP/1.") or not rest.startswith("2"):
        raise NotPlain(f"the server says {rest or 'nothing'}")
    headers: dict[str, str] = {}
    while line := _line(answers):
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip().lower()
    return headers


def _line(answers: IO[bytes]) -> str:
    return answers.readline(LINE_BYTES).decode("latin-1").rstrip("\r\n")


def _body(answers: IO[bytes], headers: Mapping[str, str]) -> bytes:
    if "content-encoding" in headers:
        raise NotPlain("the answer is compressed")
    if "content-length" in headers:
        return _exactly(answers, int(headers["content-length"]))
    if headers.get("transfer-encoding") != "chunked":
        raise NotPlain("the answer has no length")
    pieces = []
    while size := int(_line(answers), 16):
        pieces.append(_exactly(answers, size))
        _line(answers)
    while _line(answers):
        pass
    return b"".join(pieces)


def _exactly(answers: IO[bytes], size: int) -> bytes:
    content = answers.read(size)
    if len(content) != size:
        raise NotPlain("the answer is incomplete")
    return content
