"""Style sheets and scripts at paths with their hash, so that browsers cache them for good."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import HTTPException, Request, Response

from forge_functions.lazy_routes import LazyRouter

# Only these types are served.
TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

router = LazyRouter()
# Bytes, and how hard to try: the next levels take longer for little.
WORTH_PACKING, PACKING = 1_000, 5
FOR_GOOD = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class Asset:
    """A static file that pages load."""

    kind: str
    content: bytes
    packed: bytes
    digest: str


@cache
def assets() -> dict[str, Asset]:
    """Return all assets by path."""
    return dict(_assets(files("forge_functions.dashboard") / "static", ""))


@cache
def address(path: str) -> str:
    """Return the path of an asset; `KeyError` if it does not exist."""
    return f"/static/{assets()[path].digest}/{path}"


def _assets(folder: Traversable, before: str) -> list[tuple[str, Asset]]:
    entries: list[tuple[str, Asset]] = []
    for entry in folder.iterdir():
        path = before + entry.name
        if entry.is_dir():
            entries += _assets(entry, f"{path}/")
        elif kind := TYPES.get(entry.name.rpartition(".")[2]):
            entries.append((path, _asset(kind, entry.read_bytes())))
    return entries


def _asset(kind: str, content: bytes) -> Asset:
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Asset(kind, content, gzip.compress(content, mtime=0), digest)


@router.get("/static/{digest}/{path:path}")
def static(request: Request, digest: str, path: str) -> Response:
    """Return an asset. With a hash other than its own, it may not be cached."""
    asset = assets().get(path)
    if asset is None:
        raise HTTPException(404, "there is no such file")
    # During an upgrade, a server may be asked for an asset of another version's page.
    headers = {"Cache-Control": FOR_GOOD if digest == asset.digest else "no-cache"}
    headers["Vary"] = "Accept-Encoding"
    if not takes_gzip(request):
        return Response(asset.content, media_type=asset.kind, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(asset.packed, media_type=asset.kind, headers=headers)


def takes_gzip(request: Request) -> bool:
    """Tell whether the browser unpacks what is packed."""
    return "gzip" in request.headers.get("accept-encoding", "")


def packed(request: Request, answer: Response) -> Response:
    """Return an answer with its body packed, if that is worth it and the browser unpacks it.

    It must hold no secret beside what others choose, or the length would tell of the secret.
    """
    answer.headers["Vary"] = "Accept-Encoding"
    if takes_gzip(request) and len(answer.body) > WORTH_PACKING:
        answer.body = gzip.compress(answer.body, PACKING, mtime=0)
        answer.headers["Content-Encoding"] = "gzip"
        answer.headers["Content-Length"] = str(len(answer.body))
    return answer
