"""A stand-in for W&B's server: as much of its protocol as `wandb` uses for one run.

W&B's own server is closed. The requests and answers are those of wandb 0.31.0: GraphQL for the run,
a stream of its files' lines, and files that are put to the addresses that the server names.
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from support.answering import answering

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTITY, PROJECT = {"id": "e1", "name": "ann"}, "digits"
VIEWER = {"id": "u1", "entity": "ann", "username": "ann", "flags": "{}", "teams": {"edges": []}}
HISTORY = "wandb-history.jsonl"


@dataclass
class Run:
    """A run as the server keeps it."""

    asked: dict[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = False

    def described(self) -> dict[str, Any]:
        last = self.history[-1:]
        config = json.loads(self.asked["config"])
        return {
            "id": "r1",
            "name": self.asked["name"],
            "displayName": self.asked["displayName"],
            "project": {"id": "p1", "name": PROJECT, "entity": ENTITY},
            "sweepName": None,
            "tags": [],
            "config": self.asked["config"],
            "wandbConfig": json.dumps(config["_wandb"]["value"]),
            "summaryMetrics": json.dumps(last[0] if last else {}),
            "historyTail": json.dumps([json.dumps(line) for line in last]),
            "historyLineCount": len(self.history),
            "eventsTail": "[]",
            "eventsLineCount": 0,
            "logLineCount": 0,
        }


@dataclass
class Tracker:
    """A server with the runs that were made, each by its id."""

    key: str
    url: str = ""
    runs: dict[str, Run] = field(default_factory=dict)
    refused: int = 0

    def answer(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        """Return the data for a query."""
        name = re.findall(r"(?:query|mutation)\s+(\w+)", query)[0]
        if name == "RunResumeStatus":
            run = self.runs.get(given["name"])
            found = run and run.described()
            return {"model": {"id": "p1", "name": PROJECT, "entity": ENTITY, "bucket": found}}
        if name == "UpsertBucket":
            new = given["name"] not in self.runs
            run = self.runs.setdefault(given["name"], Run(given))
            return {"upsertBucket": {"bucket": run.described(), "inserted": new}}
        if name == "CreateRunFiles":
            files = [{"name": one, "uploadUrl": f"{self.url}/put"} for one in given["files"]]
            return {"createRunFiles": {"runID": "r1", "uploadHeaders": [], "files": files}}
        return {"viewer": VIEWER, "serverInfo": {"features": []}, "entity": {"organization": None}}

    def stream(self, run_id: str, said: dict[str, Any]) -> None:
        """Add the lines of a run's files, from the place that the client names."""
        run = self.runs[run_id]
        run.finished |= said.get("complete") is True and said.get("exitcode") == 0
        if sent := said.get("files", {}).get(HISTORY):
            run.history[sent["offset"] :] = map(json.loads, sent["content"])


@contextmanager
def wandb_server(key: str) -> Iterator[Tracker]:
    """Serve on this machine, for one API key."""
    told = Tracker(key)
    expected = f"Basic {b64encode(f'api:{key}'.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self._body()
            streamed = re.fullmatch(rf"/files/ann/{PROJECT}/(.+)/file_stream", self.path)
            if not streamed and self.path != "/graphql":
                self._answer({}, 404)
            elif self.headers["Authorization"] != expected:
                told.refused += 1
                self._answer({}, 401)
            elif streamed:
                told.stream(streamed[1], json.loads(body))
                self._answer({})
            else:
                asked = json.loads(body)
                data = told.answer(asked["query"], asked.get("variables") or {})
                self._answer({"data": data})

        def do_PUT(self) -> None:
            self._body()
            self._answer({})

        def _body(self) -> bytes:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            return gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body

        def _answer(self, body: dict[str, Any], status: int = 200) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_port}"
    with answering(server):
        yield told
