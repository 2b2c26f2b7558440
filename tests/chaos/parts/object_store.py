"""An S3 server in its own process, with two routes that can fail."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

import httpx
from support.ports import free_port
from support.store.storage import CREDENTIALS, Proxy, answer, drop, proxy, s3_client, s3_url
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AWS = {**CREDENTIALS, "AWS_EC2_METADATA_DISABLED": "true"}
BUCKET = "forge-chaos"
LONGEST_S = 60.0
# The query of the readiness check; moto would list all objects for it.
PROBE = "max-keys=1&"
NOTHING = (
    f"<ListBucketResult><Name>{BUCKET}</Name><KeyCount>0</KeyCount><MaxKeys>1</MaxKeys>"
    "<IsTruncated>false</IsTruncated></ListBucketResult>"
).encode()


@dataclass
class Way:
    """A route to the store; `ill` is its failure: "", "503", "slow", "hangs", "loses answers"."""

    name: str
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
        return s3_url(BUCKET, self.passage.url)

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
    """The store; `url` leads to it directly."""

    url: str
    ways: list[Way]


@contextmanager
def object_store(logs: Path, dice: Random) -> Iterator[ObjectStore]:
    """Run the server, and create its bucket."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with (logs / "store.log").open("wb") as log:
        command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-p", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
    try:
        eventually(lambda: _answers(endpoint), 60, 0.2)
        client = s3_client(endpoint)
        client.create_bucket(Bucket=BUCKET)
        client.close()
        with _way("a", endpoint, dice) as one, _way("b", endpoint, dice) as other:
            # moto checks for an object and writes it in two steps, so these run one at a time.
            other.passage.one_at_a_time = one.passage.one_at_a_time
            with patch.dict(os.environ, AWS):
                yield ObjectStore(s3_url(BUCKET, endpoint), [one, other])
    finally:
        process.kill()
        process.wait()


@contextmanager
def _way(name: str, endpoint: str, dice: Random) -> Iterator[Way]:
    with proxy(endpoint) as passage:
        way = Way(name, passage, dice)
        try:
            yield way
        finally:
            way.heal()


def _answers(endpoint: str) -> bool:
    try:
        return httpx.get(endpoint, timeout=60).status_code < 500
    except httpx.TransportError:
        return False
