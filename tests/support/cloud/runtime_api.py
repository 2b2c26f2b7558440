"""A Lambda runtime API on loopback, and functions that run under AWS's own client for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "/2018-06-01/runtime"
# A cold start on a busy machine is the slowest step.
ANSWER_S = 60.0
MS = 1000
# The packages that Lambda adds to the path; all others must come from the zip.
CLIENT = ("awslambdaric", "runtime_client", "simplejson", "snapshot_restore_py")


class Failed(AssertionError):
    """The function raised, or could not be imported."""


class RuntimeApi:
    """Passes events to one function and takes its answers, one at a time as Lambda does."""

    def __init__(self, address: str, log: Path) -> None:
        self.address = address
        self.log = log
        self._events: SimpleQueue[tuple[str, bytes]] = SimpleQueue()
        self._answers: SimpleQueue[tuple[str, bytes]] = SimpleQueue()

    def invoke(self, event: dict[str, Any]) -> Any:  # noqa: ANN401  any JSON
        """Return the function's answer to an event.

        Raises:
            Failed: it raised, could not be imported, or did not answer.
        """
        self._events.put((str(uuid4()), json.dumps(event).encode()))
        try:
            kind, body = self._answers.get(timeout=ANSWER_S)
        except Empty:
            raise Failed(f"no answer within {ANSWER_S:g} s; {self._said()}") from None
        if kind != "response":
            raise Failed(f"{body.decode()}\n{self._said()}")
        return json.loads(body)

    def next(self) -> tuple[str, bytes]:
        """Wait for an event, on the function's behalf."""
        return self._events.get()

    def answered(self, kind: str, body: bytes) -> None:
        """Accept an answer; `kind` is the last part of its URL path."""
        self._answers.put((kind, body))

    def _said(self) -> str:
        return f"the function said: {self.log.read_text(encoding='utf-8')[-3000:]}"


def _server() -> tuple[ThreadingHTTPServer, list[RuntimeApi]]:
    api: list[RuntimeApi] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            assert self.path == f"{VERSION}/invocation/next", self.path
            request_id, event = api[0].next()
            self.send_response(HTTPStatus.OK)
            self.send_header("Lambda-Runtime-Aws-Request-Id", request_id)
            self.send_header("Lambda-Runtime-Deadline-Ms", str(int((time.time() + 60) * MS)))
            arn = "arn:aws:lambda:eu-west-1:123456789012:function:forge"
            self.send_header("Lambda-Runtime-Invoked-Function-Arn", arn)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(event)))
            self.end_headers()
            self.wfile.write(event)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(HTTPStatus.ACCEPTED)
            self.send_header("Content-Length", "0")
            self.end_headers()
            api[0].answered(self.path.rpartition("/")[2], body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its signature
            """Log nothing; a failing test has its own message."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # A function waits for its next event until it is killed.
    server.daemon_threads = True
    return server, api


@contextmanager
def function(handler: str, code: Path, workplace: Path, **env: str) -> Iterator[RuntimeApi]:
    """Run a function as Lambda does: with its own code and AWS's client, and nothing else.

    Args:
        handler: `module.function`.
        code: the unpacked zip.
        workplace: a folder for files that the run creates.
        **env: the function's environment variables.
    """
    server, served = _server()
    api = RuntimeApi(f"127.0.0.1:{server.server_address[1]}", workplace / f"{handler}.log")
    served.append(api)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    with api.log.open("wb") as log:
        process = subprocess.Popen(
            # Without -S, the tests' own packages would hide any that the zip lacks.
            [sys.executable, "-S", "-m", "awslambdaric", handler],
            cwd=code,
            env={**_environment(api.address, code, workplace), **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield api
    finally:
        process.kill()
        process.wait()
        server.shutdown()
        server.server_close()


def _environment(address: str, code: Path, workplace: Path) -> dict[str, str]:
    client = workplace / "client"
    client.mkdir(exist_ok=True)
    for name in CLIENT:
        spec = find_spec(name)
        assert spec is not None, name
        assert spec.origin is not None, name
        origin = Path(spec.origin)
        source = origin.parent if spec.submodule_search_locations else origin
        link = client / source.name
        if not link.exists():
            link.symlink_to(source)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{code}:{client}",
        "LAMBDA_TASK_ROOT": str(code),
        "AWS_LAMBDA_RUNTIME_API": address,
        "AWS_LAMBDA_FUNCTION_NAME": "forge",
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024",
        "AWS_LAMBDA_LOG_GROUP_NAME": "/forge",
        "AWS_LAMBDA_LOG_STREAM_NAME": "test",
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "TZ": ":UTC",
    }
