"""An S3 server in a folder, for measurements alone: it checks no signature and no checksum.

It may wait before it answers, as one that is not on the same machine does.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

PIECE = 1 << 20
RUN = __name__ == "__main__"
ROOT = Path(sys.argv[1] if RUN else "/nonexistent")
DELAY_S = float(sys.argv[2] if RUN else 0)
METADATA = "x-amz-meta-"
metadata: dict[Path, dict[str, str]] = {}


class Handler(BaseHTTPRequestHandler):
    """Stores, reads and lists objects, and uploads in parts."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_PUT(self) -> None:
        asked = self._asked()
        path = self._path()
        if "partNumber" in asked:
            path = ROOT / "parts" / f"{int(asked['partNumber'][0]):05}"
        path.parent.mkdir(parents=True, exist_ok=True)
        left = int(self.headers["Content-Length"])
        with path.open("wb") as file:
            while left:
                piece = self.rfile.read(min(PIECE, left))
                file.write(piece)
                left -= len(piece)
            file.flush()
            os.fsync(file.fileno())
        time.sleep(DELAY_S)
        metadata[path] = {k: v for k, v in self.headers.items() if k.lower().startswith(METADATA)}
        self._answer(ETag='"x"')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "uploads" in self._asked():
            shutil.rmtree(ROOT / "parts", ignore_errors=True)
            self._answer(b"<R><UploadId>one</UploadId></R>")
            return
        self._path().parent.mkdir(parents=True, exist_ok=True)
        # A real server does not copy the parts.
        (ROOT / "parts").replace(self._path())
        self._answer(b"<R><ETag>x</ETag></R>")

    def do_GET(self, *, head: bool = False) -> None:
        path = self._path()
        if "list-type" in self._asked():
            self._list(path)
            return
        # One that was stored in parts is a folder of them.
        if not path.is_file() and not (path / "00001").exists():
            self._answer(b"<Error><Code>NoSuchKey</Code></Error>", status=404)
            return
        parts = sorted(path.iterdir()) if path.is_dir() else [path]
        sizes = [part.stat().st_size for part in parts]
        begin, end = 0, sum(sizes)
        if found := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            begin, end = int(found[1]), min(int(found[2] or end) + 1, end)
        self.send_response(206 if found else 200)
        self.send_header("Content-Length", str(end - begin))
        self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{sum(sizes)}")
        for name, value in metadata.get(path, {}).items():
            self.send_header(name, value)
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Sun, 01 Nov 2026 00:00:00 GMT")
        self.end_headers()
        for part, size in zip(parts, sizes, strict=True):
            if not head and begin < size and end > 0:
                with part.open("rb") as file:
                    self.connection.sendfile(file, max(begin, 0), min(size, end) - max(begin, 0))
            begin, end = begin - size, end - size

    def do_HEAD(self) -> None:
        self.do_GET(head=True)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its signature
        """Log nothing."""

    def _list(self, bucket: Path) -> None:
        asked = self._asked()
        begin, page = int(asked.get("continuation-token", ["0"])[0]), 1000
        found = _listed(bucket, asked.get("prefix", [""])[0])
        items = "".join(
            f"<Contents><Key>{key}</Key><ETag>&quot;x&quot;</ETag><Size>{size}</Size>"
            "<LastModified>2026-11-01T00:00:00.000Z</LastModified></Contents>"
            for key, size in found[begin : begin + page]
        )
        more = begin + page < len(found)
        token = f"<NextContinuationToken>{begin + page}</NextContinuationToken>" if more else ""
        head = f"<Name>{bucket.name}</Name><IsTruncated>{str(more).lower()}</IsTruncated>{token}"
        self._answer(f"<ListBucketResult>{head}{items}</ListBucketResult>".encode())

    def _asked(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query, keep_blank_values=True)

    def _path(self) -> Path:
        return ROOT / urlsplit(self.path).path.lstrip("/")

    def _answer(self, body: bytes = b"", *, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@cache
def _listed(bucket: Path, prefix: str) -> list[tuple[str, int]]:
    """Return the keys and sizes below a prefix, which do not change any more."""
    files = (path for path in bucket.rglob("*") if path.is_file())
    sizes = {str(path.relative_to(bucket)): path.stat().st_size for path in files}
    return sorted((key, size) for key, size in sizes.items() if key.startswith(prefix))


@contextmanager
def s3_server(root: Path, delay_s: float = 0.0) -> Iterator[tuple[str, str]]:
    """Start it as a process, and yield its address and the URL of a store in it.

    It takes `delay_s` longer for each object that it stores.
    """
    root.mkdir()
    credentials = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    os.environ |= {**credentials, "AWS_DEFAULT_REGION": "us-east-1"}
    command = [sys.executable, __file__, str(root), str(delay_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = f"http://127.0.0.1:{process.stdout.readline().strip()}"
            yield address, f"s3://bucket/forge?endpoint_url={quote(address, safe='')}"
        finally:
            process.kill()


if RUN:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
