"""A small hub of the tests' own, which speaks as Hugging Face's does."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from support.answering import answering

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = 2
LARGE = 1000


@dataclass
class Hub:
    """Repositories by `models/org/name`, each with its files, at one commit.

    Large files are at another host, `localhost`. `seen` has each request with its token.
    """

    url: str
    repositories: dict[str, dict[str, bytes]]
    token: str | None = None
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    # So many bytes of a large file's answer get through, once.
    breaks_after: int | None = None

    @staticmethod
    def commit(files: dict[str, bytes]) -> str:
        found = sha1()  # noqa: S324  git's
        for path, data in sorted(files.items()):
            found.update(path.encode() + data)
        return found.hexdigest()


@contextmanager
def hub(**repositories: dict[str, bytes]) -> Iterator[Hub]:
    """Serve repositories, named as `models__org__name`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            _answer(self, made)

        do_GET = do_HEAD = do  # noqa: N815  http.server's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its signature
            """Log nothing; a failing test has its own message."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    named = {name.replace("__", "/"): files for name, files in repositories.items()}
    made = Hub(f"http://127.0.0.1:{server.server_port}", named)
    with answering(server):
        yield made


def _answer(request: BaseHTTPRequestHandler, made: Hub) -> None:
    place, token = urlsplit(request.path), request.headers.get("Authorization")
    path = unquote(place.path)
    made.seen.append((path, token))
    elsewhere = path.startswith("/cdn/")
    if made.token and not elsewhere and token != f"Bearer {made.token}":
        error = {"X-Error-Message": "Invalid username or password.", "X-Error-Code": "RepoNotFound"}
        return _send(request, 401, b"", error)
    for name, files in made.repositories.items():
        commit = made.commit(files)
        kind, _, repo = name.partition("/")
        revisions = (f"/api/{name}/revision/main", f"/api/{name}/revision/{commit}")
        if path in {f"/api/{name}", *revisions}:
            return _send(request, 200, json.dumps({"id": repo, "sha": commit}).encode())
        if path in {f"/api/{name}/tree/main", f"/api/{name}/tree/{commit}"}:
            return _tree(request, made, files, int(parse_qs(place.query).get("cursor", ["0"])[0]))
        below = f"/{repo if kind == 'models' else name}/resolve/{commit}/"
        if path.startswith((below, f"/cdn{below}")):
            return _file(request, made, files, path.partition(below)[2], elsewhere=elsewhere)
    return _send(request, 404, b"", {"X-Error-Message": "Entry not found"})


def _tree(request: BaseHTTPRequestHandler, made: Hub, files: dict[str, bytes], first: int) -> None:
    entries: list[dict[str, object]] = [{"type": "directory", "path": "sub", "oid": "0", "size": 0}]
    for path, data in sorted(files.items()):
        blob = sha1(b"blob %d\0%s" % (len(data), data)).hexdigest()  # noqa: S324  git's
        entry: dict[str, object] = {"type": "file", "path": path, "size": len(data), "oid": blob}
        if len(data) > LARGE:
            oid = sha256(data).hexdigest()
            entry["lfs"] = {"oid": oid, "size": len(data), "pointerSize": 130}
        entries.append(entry)
    page, rest = entries[first : first + PAGE], entries[first + PAGE :]
    url = f"{made.url}{request.path.partition('?')[0]}?recursive=true&cursor={first + PAGE}"
    link = {"Link": f'<{url}>; rel="next"'} if rest else {}
    _send(request, 200, json.dumps(page).encode(), link)


def _file(
    request: BaseHTTPRequestHandler,
    made: Hub,
    files: dict[str, bytes],
    path: str,
    *,
    elsewhere: bool,
) -> None:
    data = files.get(path)
    if data is None:
        return _send(request, 404, b"", {"X-Error-Message": "Entry not found"})
    known = {
        "X-Repo-Commit": made.commit(files),
        "ETag": f'"{sha256(data).hexdigest()}"',
        "Accept-Ranges": "bytes",
    }
    if len(data) > LARGE and not elsewhere:
        host = made.url.replace("127.0.0.1", "localhost")
        linked = {"X-Linked-Size": str(len(data)), "X-Linked-ETag": known["ETag"]}
        return _send(
            request, 302, b"", {**known, **linked, "Location": f"{host}/cdn{request.path}"}
        )
    ranged = request.headers.get("Range")
    if ranged is None:
        return _send(request, 200, data, known)
    first, _, last = ranged.removeprefix("bytes=").partition("-")
    return _send(request, 206, data[int(first) : int(last) + 1], known, made)


def _send(
    request: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    headers: dict[str, str] | None = None,
    made: Hub | None = None,
) -> None:
    request.send_response(status)
    for name, value in (headers or {}).items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if request.command == "HEAD":
        return
    if made is not None and made.breaks_after is not None:
        body, made.breaks_after = body[: made.breaks_after], None
        request.close_connection = True
    request.wfile.write(body)
