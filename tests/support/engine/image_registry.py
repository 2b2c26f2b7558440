"""An image registry on loopback, where an engine speaks plain HTTP, with images of a test's own."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import TYPE_CHECKING

from support.answering import answering

if TYPE_CHECKING:
    from collections.abc import Iterator

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def one_file(name: str, data: bytes) -> bytes:
    """Return a layer with one file."""
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar.addfile(info, BytesIO(data))
    return packed.getvalue()


@dataclass
class Registry:
    """The content it serves: objects by the end of their path; `asked` has the requested paths."""

    host: str = ""
    objects: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def add(self, name: str, tag: str, *layers: bytes) -> str:
        """Serve an image made of layers, and return its manifest's digest."""
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]},
        }
        packed = [gzip.compress(layer, 1, mtime=0) for layer in layers]
        manifest = json.dumps({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self._blob(CONFIG, json.dumps(config).encode()),
            "layers": [self._blob(LAYER, data) for data in packed],
        }).encode()  # fmt: skip
        digest = digest_of(manifest)
        for reference in (tag, digest):
            self.objects[f"/v2/{name}/manifests/{reference}"] = (MANIFEST, manifest)
        return digest

    def _blob(self, kind: str, data: bytes) -> dict[str, object]:
        self.objects[digest_of(data)] = ("application/octet-stream", data)
        return {"mediaType": kind, "size": len(data), "digest": digest_of(data)}

    def find(self, path: str) -> tuple[str, bytes] | None:
        """Return an object's type and content."""
        self.asked.append(path)
        if path == "/v2/":
            return "application/json", b"{}"
        return self.objects.get(path) or self.objects.get(path.rpartition("/blobs/")[2])


@contextmanager
def image_registry() -> Iterator[Registry]:
    """Serve until the block ends."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            found = registry.find(self.path)
            kind, data = found or ("application/json", b'{"errors": [{"code": "UNKNOWN"}]}')
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Docker-Content-Digest", digest_of(data))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Keep the tests' output quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.host = f"127.0.0.1:{server.server_port}"
    with answering(server):
        yield registry
