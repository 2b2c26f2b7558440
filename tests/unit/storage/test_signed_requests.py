"""Requests to signed URLs go through the proxy that the environment names."""

from __future__ import annotations

import ssl
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING

from forge_schema.model.stored import SignedUrl
from forge_worker.queue.http.signed_requests import SignedRequests

if TYPE_CHECKING:
    import pytest


class Proxy(BaseHTTPRequestHandler):
    heard: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.heard.append((self.path, self.headers["Proxy-Authorization"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"up")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its own name
        pass


def test_the_environments_proxy_is_used_unless_a_host_is_excepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Proxy, "heard", [], raising=False)
    with HTTPServer(("127.0.0.1", 0), Proxy) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("http_proxy", f"http://ann:p%40ss@127.0.0.1:{server.server_port}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        told = []
        with closing(SignedRequests(ssl.create_default_context())) as requests:
            for host in ("store.invalid", f"127.0.0.1:{server.server_port}"):
                signed = SignedUrl(url=f"http://{host}/x", method="GET", expires_in_s=9)
                with requests.getting("x", signed) as answer:
                    told.append(answer.data)
        server.shutdown()
    assert told == [b"up", b"up"]
    assert Proxy.heard == [("http://store.invalid/x", "Basic YW5uOnBAc3M="), ("/x", None)]
