"""Metadata servers that act like those of AWS, Google and Azure, and reject what those reject."""

from __future__ import annotations

import json
import threading
import uuid
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from support.answering import answering

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Answer = tuple[int, str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request; its header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: str


class FakeCloud(ABC):
    """A metadata server; `ahead_s` is the offset of its clock from this machine's."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.ahead_s = 0.0
        self.changed = threading.Condition()

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.ahead_s)

    @abstractmethod
    def answer(self, asked: Asked) -> Answer:
        """Return status, text and headers."""


class FakeAws(FakeCloud):
    """IMDSv2, with version 1 disabled."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: set[str] = set()
        self.action: dict[str, str] | None = None
        self.recommended = False
        self.market = "spot"

    def interrupt(self, in_s: float) -> None:
        at = (self.now() + timedelta(seconds=in_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.action = {"action": "terminate", "time": at}

    def answer(self, asked: Asked) -> Answer:
        if asked.method == "PUT" and asked.path == "/latest/api/token":
            return self._token(asked.headers)
        if asked.headers.get("x-aws-ec2-metadata-token") not in self.tokens:
            return 401, "", {}
        if asked.path == "/latest/meta-data/spot/instance-action" and self.action:
            return 200, json.dumps(self.action), {}
        if asked.path == "/latest/meta-data/events/recommendations/rebalance" and self.recommended:
            return 200, json.dumps({"noticeTime": "2026-11-05T08:22:00Z"}), {}
        if asked.path == "/latest/meta-data/instance-life-cycle":
            return 200, self.market, {}
        return 404, "", {}

    def _token(self, headers: Mapping[str, str]) -> Answer:
        ttl = headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
        if not ttl.isdecimal() or not 1 <= int(ttl) <= 21600:
            return 400, "", {}
        if "x-forwarded-for" in headers:
            return 403, "", {}
        token = uuid.uuid4().hex
        self.tokens.add(token)
        return 200, token, {"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": ttl}


class FakeGcp(FakeCloud):
    """Answers a wait-for-change request when there is a change, or when its timeout expires."""

    def __init__(self) -> None:
        super().__init__()
        self.preempted = "FALSE"
        self.maintenance = "NONE"
        self.market = "TRUE"
        self.waiting = 0

    def preempt(self) -> None:
        with self.changed:
            self.preempted = "TRUE"
            self.changed.notify_all()

    def answer(self, asked: Asked) -> Answer:
        flavor = {"Metadata-Flavor": "Google"}
        if asked.headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in asked.headers:
            return 403, "", flavor
        place = asked.path.removeprefix("/computeMetadata/v1/instance/")
        if place == "preempted":
            return 200, self._preempted(asked.query), {**flavor, "ETag": self._etag()}
        said = {
            "id": "4711",
            "maintenance-event": self.maintenance,
            "scheduling/preemptible": self.market,
        }.get(place)
        return (404, "", flavor) if said is None else (200, said, flavor)

    def _etag(self) -> str:
        return f"etag-{self.preempted}"

    def _preempted(self, query: Mapping[str, str]) -> str:
        with self.changed:
            if query.get("wait_for_change") == "true":
                self.waiting += 1
                seconds = float(query["timeout_sec"])
                self.changed.wait_for(lambda: query.get("last_etag") != self._etag(), seconds)
            return self.preempted


class FakeAzure(FakeCloud):
    """Scheduled events for a scale set that has this machine as `pool_0`."""

    machine = "pool_0"

    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, object]] = []
        self.started: list[str] = []
        self.market = "Spot"

    def schedule(self, kind: str, in_s: float, *machines: str, status: str = "Scheduled") -> str:
        event = str(uuid.uuid4())
        at = format_datetime(self.now() + timedelta(seconds=in_s), usegmt=True)
        self.events.append({
            "EventId": event, "EventType": kind, "ResourceType": "VirtualMachine",
            "Resources": list(machines or [self.machine]), "EventStatus": status,
            "NotBefore": "" if status == "Started" else at,
        })  # fmt: skip
        return event

    def answer(self, asked: Asked) -> Answer:
        if asked.headers.get("metadata") != "true" or "x-forwarded-for" in asked.headers:
            return 400, json.dumps({"error": "Bad request. Required metadata header"}), {}
        if "api-version" not in asked.query:
            return 400, json.dumps({"error": "Bad request. api-version was not specified"}), {}
        compute = {"name": self.machine, "priority": self.market}
        place = asked.path.removeprefix("/metadata/instance/compute/")
        if place in compute and asked.query.get("format") == "text":
            return 200, compute[place], {}
        if asked.path != "/metadata/scheduledevents":
            return 404, "", {}
        if asked.method == "POST":
            requests = json.loads(asked.body)["StartRequests"]
            self.started += [request["EventId"] for request in requests]
            return 200, "", {}
        return 200, json.dumps({"DocumentIncarnation": 1, "Events": self.events}), {}


@contextmanager
def serving(cloud: FakeCloud) -> Iterator[FakeCloud]:
    """Serve a cloud on loopback while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def date_time_string(self, timestamp: float | None = None) -> str:  # noqa: ARG002
            return format_datetime(cloud.now(), usegmt=True)

        def log_message(self, *_: object) -> None: ...

        def _any(self) -> None:
            parts = urlsplit(self.path)
            cloud.asked.append(f"{self.command} {parts.path}")
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0))).decode()
            asked = Asked(self.command, parts.path, query, headers, body)
            status, text, more = cloud.answer(asked)
            self.send_response(status)
            for name, value in {**more, "Content-Length": str(len(text.encode()))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_PUT = do_POST = _any  # noqa: N815  the names are those of the base class

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    cloud.url = f"http://127.0.0.1:{server.server_address[1]}"
    with answering(server):
        yield cloud
