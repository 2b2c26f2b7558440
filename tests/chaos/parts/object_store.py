"""An S3 server in its own process, or that of FORGE_TEST_S3, with two routes that can fail."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

import httpx
from support.ports import free_port
from support.store.storage import CREDENTIALS, Proxy, answer, drop, given, new_bucket, proxy, s3_url
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.store.storage import Bucket

AWS = {**CREDENTIALS, "AWS_EC2_METADATA_DISABLED": "true"}
LONGEST_S = 60.0
# The query of the readiness check; moto would list all objects for it.
PROBE = "max-keys=1&"
NOTHING = (
    b"<ListBucketResult><Name>forge</Name><KeyCount>0</KeyCount><MaxKeys>1</MaxKeys>"
    b"<IsTruncated>false</IsTruncated></ListBucketResult>"
)


@dataclass
class Way:
    """A route to the store; `ill` is its failure: "", "503", "slow", "hangs", "loses answers"."""

    name: str
    bucket: str
    passage: Proxy
    dice: Random
    ill: str = ""
    well: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.well.set()
        self.passage.fault = self._fault
        self.passage.answer_limit = self._answer_limit

    @property
    def url(self) -> str:
        """The store's URL on this route."""
        return s3_url(self.bucket, self.passage.url)

    def fall_ill(self, ill: str) -> None:
        self.ill = ill
        self.well.clear()

    def heal(self) -> None:
        self.ill = ""
        self.well.set()

    def _fault(self, handler: BaseHTTPRequestHandler, body: bytes) -> bool:  # noqa: ARG002  as a Fault
        self.passage.seen.clear()
        if self.ill in {"", "loses answers"} and PROBE in handler.path:
            return answer(handler, 200, NOTHING)
        if self.ill == "503" and self.dice.random() < 0.8:
            return answer(handler, 503, b"<Error><Code>SlowDown</Code></Error>")
        if self.ill == "hangs":
            self.well.wait(LONGEST_S)
            return drop(handler)
        if self.ill == "slow":
            self.well.wait(self.dice.uniform(0.5, 3.0))
        return False

    def _answer_limit(self, method: str, path: str) -> int | None:  # noqa: ARG002  as a limit
        return 0 if self.ill == "loses answers" and self.dice.random() < 0.3 else None


@dataclass
class ObjectStore:
    """The store; `url` leads to it directly, `data` is a bucket for what jobs read."""

    url: str
    ways: list[Way]
    data: Bucket


@contextmanager
def object_store(logs: Path, dice: Random) -> Iterator[ObjectStore]:
    """Run the server, and create its bucket."""
    with ExitStack() as stack:
        endpoint = given() or stack.enter_context(_moto(logs))
        bucket, data = (stack.enter_context(new_bucket(endpoint)) for _ in range(2))
        one, other = (stack.enter_context(_way(name, bucket, dice)) for name in "ab")
        if not given():
            # moto checks for an object and writes it in two steps, so these run one at a time.
            other.passage.one_at_a_time = one.passage.one_at_a_time
        with patch.dict(os.environ, AWS):
            yield ObjectStore(bucket.url(), [one, other], data)


@contextmanager
def _moto(logs: Path) -> Iterator[str]:
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with (logs / "store.log").open("wb") as log:
        command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-p", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
    try:
        eventually(lambda: _answers(endpoint), 60, 0.2)
        yield endpoint
    finally:
        process.kill()
        process.wait()


@contextmanager
def _way(name: str, bucket: Bucket, dice: Random) -> Iterator[Way]:
    with proxy(bucket.endpoint) as passage:
        way = Way(name, bucket.name, passage, dice)
        try:
            yield way
        finally:
            way.heal()


def _answers(endpoint: str) -> bool:
    try:
        return httpx.get(endpoint, timeout=60).status_code < 500
    except httpx.TransportError:
        return False
