"""S3 for tests: moto's server, a bucket for each test, and a proxy that can misbehave."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from unittest.mock import patch
from urllib.parse import quote, unquote, urlsplit
from uuid import uuid4

import boto3
import pytest
from botocore.loaders import create_loader
from forge_schema.storage import Store, StoreUnfit
from support.answering import answering

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mypy_boto3_s3 import S3Client

# A real S3 server for the tests instead of moto: http://key:secret@host:port
GIVEN = urlsplit(os.environ.get("FORGE_TEST_S3", ""))
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": unquote(GIVEN.username or "test"),
    "AWS_SECRET_ACCESS_KEY": unquote(GIVEN.password or "test"),
}
# Each client would read a megabyte of JSON about S3, and every test makes a few.
shared_loader = cache(create_loader)
HOP_BY_HOP = {"connection", "transfer-encoding", "content-length"}


def given() -> str | None:
    """Return the endpoint URL of FORGE_TEST_S3, if set."""
    return f"{GIVEN.scheme}://{GIVEN.hostname}:{GIVEN.port}" if GIVEN.hostname else None


@contextmanager
def moto_server() -> Iterator[str]:
    """Run a private S3 server, or use the one of FORGE_TEST_S3; yield its endpoint URL."""
    if url := given():
        with patch("botocore.session.create_loader", shared_loader):
            yield url
        return
    from moto.server import ThreadedMotoServer  # noqa: PLC0415  half a second of each process

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        with patch("botocore.session.create_loader", shared_loader):
            yield f"http://{host}:{port}"
    finally:
        server.stop()


def only_moto(why: str) -> None:
    """Skip the rest of a test on the server of FORGE_TEST_S3."""
    if GIVEN.hostname:
        pytest.skip(why)


def needs_conditions(store: Store) -> None:
    """Skip the rest of a test on a server without conditional writes, which are refused there."""
    try:
        store.put("conditional", b"", if_absent=True)
    except StoreUnfit as error:
        only_moto(str(error))
        raise
    store.delete("conditional")


def s3_client(endpoint: str) -> S3Client:
    """Create a plain client, to inspect the server without the store."""
    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )


@dataclass(frozen=True)
class Bucket:
    """A bucket of the test's own; `client` accesses it without the store."""

    name: str
    endpoint: str
    client: S3Client

    def url(self, endpoint: str | None = None) -> str:
        """Return the URL of a store in the bucket, through its own endpoint or another."""
        return s3_url(self.name, endpoint or self.endpoint)


@contextmanager
def new_bucket(endpoint: str) -> Iterator[Bucket]:
    """Make a bucket."""
    client = s3_client(endpoint)
    name = f"forge-{uuid4().hex[:12]}"
    client.create_bucket(Bucket=name)
    yield Bucket(name, endpoint, client)
    client.close()


def use_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give boto3 the credentials that moto accepts, and no others."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def s3_url(bucket: str, endpoint: str, prefix: str = "forge") -> str:
    """Return the URL of a store in a bucket behind an endpoint."""
    return f"s3://{bucket}/{prefix}?endpoint_url={quote(endpoint, safe='')}&region=us-east-1"


Fault = Callable[[BaseHTTPRequestHandler, bytes], bool]
"""Asked before a request is passed on; True when it has dealt with the request itself."""


class Proxy:
    """Forwards requests to an S3 server, unless a test's `fault` intervenes."""

    def __init__(self, target: str, listening: str) -> None:
        self.target, self.url = urlsplit(target), listening
        self.fault: Fault | None = None
        # Bytes of an answer's body that get through; with 0 the server acts, but nobody hears.
        self.answer_limit: Callable[[str, str], int | None] = lambda _method, _path: None
        self.seen: list[str] = []
        # moto checks for the object and writes it in two steps; S3 does both atomically. Requests
        # without a condition need not wait for each other.
        self.one_at_a_time = threading.Lock()


@contextmanager
def proxy(target: str) -> Iterator[Proxy]:
    """Run a proxy in front of an S3 server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            _pass_on(self, state)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do  # noqa: N815  http.server's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its signature
            """Log nothing; a failing test has its own message."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Proxy(target, f"http://127.0.0.1:{server.server_port}")
    with answering(server):
        yield state


def _pass_on(handler: BaseHTTPRequestHandler, state: Proxy) -> None:
    if handler.headers.get("Expect", "").lower() == "100-continue":
        handler.send_response_only(100)
        handler.end_headers()
    length = int(handler.headers.get("Content-Length", 0))
    body = handler.rfile.read(length)
    if len(body) < length:
        # The sender is gone; the server would wait for the rest of the body.
        drop(handler)
        return
    state.seen.append(f"{handler.command} {handler.path}")
    if state.fault and state.fault(handler, body):
        return
    conditional = handler.headers.get("If-None-Match")
    with state.one_at_a_time if conditional else nullcontext():
        reply, content = _ask(handler, state, body)
    limit = state.answer_limit(handler.command, handler.path)
    if limit == 0:
        drop(handler)
        return
    handler.send_response(reply.status)
    for name, value in reply.getheaders():
        if name.lower() not in HOP_BY_HOP:
            handler.send_header(name, value)
    told = reply.getheader("Content-Length") if handler.command == "HEAD" else len(content)
    handler.send_header("Content-Length", str(told))
    handler.end_headers()
    handler.wfile.write(content[:limit])
    if limit is not None:
        drop(handler)


def _ask(
    handler: BaseHTTPRequestHandler, state: Proxy, body: bytes
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(state.target.netloc, timeout=60)
    try:
        headers = {k: v for k, v in handler.headers.items() if k.lower() != "expect"}
        connection.request(handler.command, handler.path, body, headers)
        reply = connection.getresponse()
        return reply, reply.read()
    finally:
        connection.close()


def answer(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"") -> bool:
    """Answer instead of the server; return True, as a `fault` that handled the request."""
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
    return True


def drop(handler: BaseHTTPRequestHandler) -> bool:
    """Break the connection; return True, as a `fault` that handled the request."""
    handler.close_connection = True
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)
    return True


def unfinished_uploads(client: S3Client, bucket: str) -> int:
    """Count the multipart uploads that were neither finished nor aborted."""
    return len(client.list_multipart_uploads(Bucket=bucket).get("Uploads", []))


def kill_in_mid_upload(url: str, source: Path, env: dict[str, str]) -> None:
    """Start storing a file in a process that dies by SIGKILL after one part was sent."""
    code = (
        "import os, signal, sys; from pathlib import Path;"
        "from forge_schema.storage import open_store;"
        "open_store(sys.argv[1]).put_file('f', Path(sys.argv[2]),"
        " progress=lambda _: os.kill(os.getpid(), signal.SIGKILL))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, url, str(source)], env={**os.environ, **env}, check=False
    )
    assert ended.returncode == -9
