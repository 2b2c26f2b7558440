"""A small S3 server in memory that differs from S3 as real servers do.

Each `Quirks` holds what a real server was seen to answer on 28 November 2026, with boto3 1.44.8.
`make grounds` runs the storage tests on the real ones.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from support.answering import answering
from support.store.storage import shared_loader
from support.store.verifying_proxy import SIGNATURE, Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUCKET = "odd"
# So many listings are empty where a server's lag behind what is written.
LATE_LISTINGS = 6
WRITTEN = "Sat, 28 Nov 2026 12:00:00 GMT"


@dataclass(frozen=True)
class Quirks:
    """What a server does with conditions (None: it ignores them), uploads and listings."""

    name: str
    put_condition: int | None = 412
    complete_condition: int | None = 412
    code: str = "PreconditionFailed"
    checks_checksum: bool = True
    takes_content_hash: bool = True
    checks_signature: bool = True
    folders_first: bool = False
    lists_uploads: bool = True
    loses_pages: bool = False
    lists_late: bool = False
    read_only: bool = False


S3 = Quirks("S3")
RGW = Quirks("Ceph RADOS Gateway 18.2.7", complete_condition=None, checks_checksum=False)
SEAWEEDFS = Quirks("SeaweedFS 4.48", takes_content_hash=False, folders_first=True)
SWIFT = Quirks("OpenStack Swift 2.35.1", put_condition=501, code="InvalidRequest")
S3RVER = Quirks(
    "s3rver 3.7.1",
    put_condition=None,
    complete_condition=None,
    checks_checksum=False,
    takes_content_hash=False,
    checks_signature=False,
    lists_uploads=False,
)
SERVERS = (S3, RGW, SEAWEEDFS, SWIFT, S3RVER)


class Kept(NamedTuple):
    """An object: its content and its metadata."""

    body: bytes
    meta: dict[str, str]


@dataclass
class OddS3:
    """The server's state. `before` is called with each method and key, before it acts."""

    quirks: Quirks
    endpoint: str
    objects: dict[str, Kept] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    before: Callable[[str, str], None] = lambda _method, _key: None
    listings: int = 0
    lock: Lock = field(default_factory=Lock)

    @property
    def url(self) -> str:
        """The URL of a store in its only bucket."""
        return f"s3://{BUCKET}/forge?endpoint_url={self.endpoint}&region=us-east-1"

    def content(self, key: str) -> bytes:
        """Return an object of the store."""
        return self.objects[f"forge/{key}"].body

    def listed(self, query: dict[str, str]) -> tuple[list[str], str]:
        """Return a page of keys, and where the next one begins."""
        self.listings += 1
        late = self.quirks.lists_late and self.listings < LATE_LISTINGS
        names = [name for name in self.objects if name.startswith(query.get("prefix", ""))]
        names = [] if late else names
        # A folder's name sorts by itself there, not together with the slash behind it.
        order = (lambda name: name.split("/")) if self.quirks.folders_first else (lambda name: name)
        names = sorted(names, key=order)
        begin, size = int(query.get("continuation-token", 0)), int(query.get("max-keys", 1000))
        after = "" if self.quirks.loses_pages or begin + size >= len(names) else str(begin + size)
        return names[begin : begin + size], after


@contextmanager
def odd_s3(quirks: Quirks) -> Iterator[OddS3]:
    """Run a server with the quirks of another."""

    class Handler(_Handler):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint = f"http://127.0.0.1:{server.server_port}"
    Handler.state = OddS3(quirks, endpoint)
    Handler.verifier = Verifier(endpoint, checks_checksum=quirks.checks_checksum)
    with answering(server), patch("botocore.session.create_loader", shared_loader):
        yield Handler.state


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: OddS3
    verifier: Verifier
    query: dict[str, str]
    body: bytes

    def do(self) -> None:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        asked = parse_qs(parts.query, keep_blank_values=True)
        self.query = {name: values[0] for name, values in asked.items()}
        self.state.seen.append(f"{self.command} {key}")
        self.state.before(self.command, key)
        if SIGNATURE in self.query and self._refuses():
            return
        with self.state.lock:
            if {"uploads", "uploadId"} & self.query.keys():
                self._upload(key)
            else:
                {"PUT": self._put, "GET": self._get, "HEAD": self._get, "DELETE": self._delete}[
                    self.command
                ](key)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do  # noqa: N815  http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its signature
        """Log nothing; a failing test has its own message."""

    def _refuses(self) -> bool:
        quirks, said = self.state.quirks, self.headers.get("x-amz-content-sha256")
        if said and not quirks.takes_content_hash and quirks.checks_signature:
            return self._error(403, "SignatureDoesNotMatch")
        if quirks.checks_signature and self.verifier.fault(self, self.body):
            return True
        if said and quirks.takes_content_hash and said != hashlib.sha256(self.body).hexdigest():
            return self._error(400, "XAmzContentSHA256Mismatch")
        return False

    def _put(self, key: str) -> None:
        if self.state.quirks.read_only:
            self._error(403, "AccessDenied")
        elif not self._fails_condition(key, self.state.quirks.put_condition):
            self._keep(key, self.body)
            self._answer(200, headers={"ETag": _etag(self.body)})

    def _keep(self, key: str, body: bytes) -> None:
        meta = {n: v for n, v in self.headers.items() if n.lower().startswith("x-amz-meta-")}
        self.state.objects[key] = Kept(body, meta)

    def _fails_condition(self, key: str, status: int | None) -> bool:
        if "If-None-Match" not in self.headers or status is None:
            return False
        # Swift refuses the condition itself, whether or not the object exists.
        if status == 501:
            return self._error(501, "NotImplemented")
        return key in self.state.objects and self._error(status, self.state.quirks.code)

    def _get(self, key: str) -> None:
        if not key:
            self._list()
        elif (kept := self.state.objects.get(key)) is None:
            self._error(404, "NoSuchKey")
        else:
            told = {"ETag": _etag(kept.body), "Last-Modified": WRITTEN, **kept.meta}
            self._answer(200, kept.body, told)

    def _delete(self, key: str) -> None:
        self.state.objects.pop(key, None)
        self._answer(204)

    def _list(self) -> None:
        names, after = self.state.listed(self.query)
        found = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(self.state.objects[name].body)}</Size>"
            "</Contents>"
            for name in names
        )
        more = f"<NextContinuationToken>{after}</NextContinuationToken>" if after else ""
        truncated = str(bool(after)).lower()
        self._xml(
            f"<ListBucketResult><Name>{BUCKET}</Name><IsTruncated>{truncated}</IsTruncated>"
            f"{more}{found}</ListBucketResult>"
        )

    def _upload(self, key: str) -> None:
        uploads, upload = self.state.uploads, self.query.get("uploadId", "")
        match self.command:
            case "GET" if self.state.quirks.lists_uploads:
                inside = "".join(
                    f"<Upload><Key>{escape(one.partition(' ')[2])}</Key><UploadId>{escape(one)}"
                    "</UploadId></Upload>"
                    for one in uploads
                )
                self._xml(f"<ListMultipartUploadsResult>{inside}</ListMultipartUploadsResult>")
            case "GET":
                self._error(501, "NotImplemented")
            case "POST" if not upload:
                uploads[new := f"{len(self.state.seen)} {key}"] = {}
                self._xml(
                    "<InitiateMultipartUploadResult>"
                    f"<UploadId>{escape(new)}</UploadId></InitiateMultipartUploadResult>"
                )
            case "PUT":
                uploads[upload][int(self.query["partNumber"])] = self.body
                self._answer(200, headers={"ETag": _etag(self.body)})
            case "DELETE":
                uploads.pop(upload, None)
                self._answer(204)
            case _:
                if not self._fails_condition(key, self.state.quirks.complete_condition):
                    parts = uploads.pop(upload)
                    self._keep(key, b"".join(parts[number] for number in sorted(parts)))
                    self._xml("<CompleteMultipartUploadResult/>")

    def _xml(self, inside: str) -> None:
        self._answer(200, f'<?xml version="1.0"?>{inside}'.encode())

    def _error(self, status: int, code: str) -> bool:
        self._answer(status, f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode())
        return True

    def _answer(
        self, status: int, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _etag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'
