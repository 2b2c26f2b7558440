"""A proxy that makes S3's own checks of presigned requests, which moto omits.

It computes the signature again from the received request, with botocore's signing code.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from support.store.storage import CREDENTIALS, answer, proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler

SIGNATURE = "X-Amz-Signature"
WEEK_S = 604_800
SKEW = timedelta(minutes=15)


class Denied(Exception):
    """An S3 error: a status and a code."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


@dataclass
class Verifier:
    """Checks requests against one key pair, on a clock that a test may set ahead.

    `holders` lets requests through unchecked if the keys' holder signed them in a header.
    """

    url: str
    access_key: str = CREDENTIALS["AWS_ACCESS_KEY_ID"]
    secret: str = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    ahead: timedelta = timedelta()
    holders: bool = False
    checks_checksum: bool = True
    refused: list[str] = field(default_factory=list)

    def fault(self, handler: BaseHTTPRequestHandler, body: bytes) -> bool:
        """Answer with S3's error if S3 would refuse; let the rest through."""
        try:
            self._judge(handler, body)
        except Denied as denied:
            self.refused.append(denied.code)
            # A body without a length was not read.
            handler.close_connection = True
            return answer(handler, denied.status, f"<Code>{denied.code}</Code>".encode())
        return False

    def _judge(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        by = f"AWS4-HMAC-SHA256 Credential={self.access_key}/"
        if self.holders and handler.headers.get("Authorization", "").startswith(by):
            return
        query = _query(handler.path)
        if "Transfer-Encoding" in handler.headers:
            raise Denied(411, "MissingContentLength")
        names = query["X-Amz-SignedHeaders"].split(";")
        _check_headers(handler, names)
        self._check_time(query)
        if not hmac.compare_digest(self._signature(handler, query, names), query[SIGNATURE]):
            raise Denied(403, "SignatureDoesNotMatch")
        if len(body) != int(handler.headers.get("Content-Length", 0)):
            raise Denied(400, "IncompleteBody")
        checksum = handler.headers.get("x-amz-checksum-sha256")
        if (
            self.checks_checksum
            and checksum
            and checksum != b64encode(hashlib.sha256(body).digest()).decode()
        ):
            raise Denied(400, "BadDigest")

    def _check_time(self, query: dict[str, str]) -> None:
        signed = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        lasts_s, now = int(query["X-Amz-Expires"]), datetime.now(UTC) + self.ahead
        if not 0 < lasts_s <= WEEK_S or signed - now > SKEW:
            raise Denied(400, "AuthorizationQueryParametersError")
        if now > signed + timedelta(seconds=lasts_s):
            raise Denied(403, "AccessDenied")

    def _signature(
        self, handler: BaseHTTPRequestHandler, query: dict[str, str], names: list[str]
    ) -> str:
        access_key, date, region, service, _ = query["X-Amz-Credential"].split("/")
        if (access_key, service) != (self.access_key, "s3") or date != query["X-Amz-Date"][:8]:
            raise Denied(403, "InvalidAccessKeyId")
        url, _, _ = handler.path.partition(f"&{SIGNATURE}=")
        request = AWSRequest(
            handler.command,
            f"http://{handler.headers['Host']}{url}",
            {name: ",".join(handler.headers.get_all(name, [])) for name in names},
        )
        request.context["timestamp"] = query["X-Amz-Date"]
        auth = S3SigV4QueryAuth(Credentials(access_key, self.secret), service, region)
        said = auth.string_to_sign(request, auth.canonical_request(request))
        return str(auth.signature(said, request))


def _query(path: str) -> dict[str, str]:
    pairs = parse_qsl(urlsplit(path).query, keep_blank_values=True)
    query = dict(pairs)
    needed = {"Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature"}
    if len(query) != len(pairs) or not {f"X-Amz-{name}" for name in needed} <= query.keys():
        raise Denied(403, "AccessDenied")
    # The signature comes last, as botocore writes it: anything after it would be unsigned.
    if pairs[-1][0] != SIGNATURE or query["X-Amz-Algorithm"] != "AWS4-HMAC-SHA256":
        raise Denied(400, "AuthorizationQueryParametersError")
    return query


def _check_headers(handler: BaseHTTPRequestHandler, signed: list[str]) -> None:
    came = {name.lower() for name in handler.headers}
    if "host" not in signed or not set(signed) <= came:
        raise Denied(403, "SignatureDoesNotMatch")
    # S3 accepts no extra headers of its own from a holder of the URL.
    if {name for name in came if name.startswith("x-amz-")} - set(signed):
        raise Denied(403, "AccessDenied")


@contextmanager
def verifying_proxy(target: str, *, holders: bool = False) -> Iterator[Verifier]:
    """Run a verifying proxy in front of an S3 server; without holders, for presigned requests."""
    with proxy(target) as running:
        verifier = Verifier(running.url, holders=holders)
        running.fault = verifier.fault
        yield verifier
