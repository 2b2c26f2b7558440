"""An image registry without images: it answers that it has none."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.answering import answering

UNKNOWN = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}


@contextmanager
def empty_registry() -> Iterator[str]:
    """Serve on loopback, where an engine speaks plain HTTP, and yield host and port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Empty)
    with answering(server):
        yield f"127.0.0.1:{server.server_port}"


class _Empty(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        base = self.path == "/v2/"
        body = json.dumps({} if base else UNKNOWN).encode()
        self.send_response(200 if base else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Keep the tests' output quiet."""
