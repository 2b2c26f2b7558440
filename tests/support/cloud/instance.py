"""An AWS machine as its own programs see it: the metadata service, and the API behind IAM."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from support.answering import answering
from support.cloud.gateway_events import http_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROLE, ROLE_ID, REGION = "forge-workers", "AROAEXAMPLEID12345678", "eu-west-1"
KEYS = ("ASIAEXAMPLE", "c2VjcmV0", "c2Vzc2lvbg")
PROFILE = "/latest/meta-data/iam/security-credentials/"


@dataclass
class Aws:
    """What the machine can reach; `handler` is the function behind the API, `url` the API's URL."""

    handler: Callable[[dict[str, Any], None], dict[str, Any]]
    instance: str = "i-0123456789abcdef0"
    url: str = ""
    unsigned: int = 0
    answers: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def aws(handler: Callable[[dict[str, Any], None], dict[str, Any]]) -> Iterator[Aws]:
    """Serve both on one loopback port until the block ends."""
    state = Aws(handler)

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            assert self.path == "/latest/api/token"
            _send(self, 200, "session")

        def do_GET(self) -> None:
            if self.headers.get("x-aws-ec2-metadata-token") != "session":
                # Only IMDSv2 is allowed.
                _send(self, 401, "")
            elif self.path == PROFILE:
                _send(self, 200, ROLE)
            else:
                _send(self, 200, json.dumps(_credentials()))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if not _signed(self, body, state.url):
                state.unsigned += 1
                _send(self, 403, '{"message":"Forbidden"}')
                return
            event = http_event("POST", self.path, json.loads(body))
            iam = {"userId": f"{ROLE_ID}:{state.instance}", "accountId": "123456789012"}
            event["requestContext"]["authorizer"] = {"iam": iam}
            answer = state.handler(event, None)
            state.answers.append(answer)
            _send(self, answer["statusCode"], answer["body"])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its signature
            """Log nothing; a failing test has its own message."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    with answering(server):
        yield state


def _credentials() -> dict[str, str]:
    key, secret, token = KEYS
    return {
        "Code": "Success",
        "Type": "AWS-HMAC",
        "AccessKeyId": key,
        "SecretAccessKey": secret,
        "Token": token,
        "LastUpdated": "2026-11-21T00:00:00Z",
        "Expiration": "2099-01-01T00:00:00Z",
    }


def _signed(handler: BaseHTTPRequestHandler, body: str, url: str) -> bool:
    """Sign the request again with the machine's credentials, and compare."""
    said = handler.headers.get("Authorization", "")
    names = said.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    headers = {name: handler.headers[name] for name in names if name in handler.headers}
    again = AWSRequest("POST", url + handler.path, data=body, headers=headers)
    again.context["timestamp"] = handler.headers.get("X-Amz-Date", "")
    signer = SigV4Auth(Credentials(*KEYS), "execute-api", REGION)
    text = signer.string_to_sign(again, signer.canonical_request(again))
    return said.endswith(f"Signature={signer.signature(text, again)}") and "host" in names


def _send(handler: BaseHTTPRequestHandler, status: int, body: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body.encode())))
    handler.end_headers()
    handler.wfile.write(body.encode())
